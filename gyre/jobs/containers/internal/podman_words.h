#pragma once

#include <string>

#include "gyre/base/error.h"
#include "gyre/jobs/containers/container_runtime.h"

namespace gyre::jobs::containers::internal {

/// Why an image could not be fetched, from what podman has printed: one sentence, and what to do.
Error fetch_error(const ImageName& name, const std::string& output);

/// Why an image could not be built: the instruction, and the last words of its program.
Error build_error(const std::string& out, const std::string& error);
/// Whether the configuration of an image, as JSON, has instructions for images that are built on it (ONBUILD), or
/// cannot be understood.
bool has_triggers(const std::string& configuration);

/// The last lines of what programs have said, for logs.
std::string last_lines(const std::string& text, std::size_t most);

/// What podman itself calls the error, on one line.
std::string words_of_podman(const std::string& output);

/// The name that Go, and so every image, has for a machine of the kind that `uname -m` says.
std::string architecture_of_images(const std::string& machine);

}  // namespace gyre::jobs::containers::internal
