#pragma once

#include <string>

#include "gyre/base/error.h"
#include "gyre/jobs/containers/container_runtime.h"

namespace gyre::jobs::containers::internal {

/// Why an image could not be fetched, from what podman has printed: one sentence, and what to do.
Error fetch_error(const ImageName& name, const std::string& output);

/// What podman itself calls the error, on one line.
std::string words_of_podman(const std::string& output);

/// The name that Go, and so every image, has for a machine of the kind that `uname -m` says.
std::string architecture_of_images(const std::string& machine);

}  // namespace gyre::jobs::containers::internal
