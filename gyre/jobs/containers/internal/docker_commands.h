#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gyre/jobs/containers/container_runtime.h"

// What docker is asked in other words than podman, as pure functions.
namespace gyre::jobs::containers::internal {

/// The account of this machine that an account of a container is whose root is `root`; `owner`: the user whose
/// container it is. Accounts that a container cannot have are its last one.
std::uint32_t account_outside(std::uint64_t account, std::uint32_t root, std::uint32_t owner);

/// A container of the container's image that never runs, for its files. It has the labels, by which a node finds what
/// was left on it.
std::vector<std::string> docker_create_arguments(const Container& container);

/// `image_id`: the copy whose files belong to the container's root. `variables`: the image's. The places of the
/// container are not in it: docker's daemon does not see our mounts.
std::vector<std::string> docker_run_arguments(const Container& container, const std::string& image_id,
                                              const std::vector<std::string>& variables);

}  // namespace gyre::jobs::containers::internal
