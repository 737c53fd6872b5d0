#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "gyre/base/clock.h"

// The first process of a container whose runtime has made it the machine's root (ADR 146): before anything of the job
// runs there, it becomes a root that is the job's account outside.
namespace gyre::jobs::node {

/// The account outside that is root in the container, and the others: accounts 1 to `others` there are those from
/// `first_other` on.
struct ContainerRoot {
  std::uint32_t user = 0;
  std::uint32_t group = 0;
  std::uint32_t first_other = 0;
  std::uint32_t others = 0;
};

/// "USER:GROUP:FIRST:COUNT". Error(kInvalidArgument).
ContainerRoot parse_container_root(const std::string& text);

/// Waits until `folder` is there: the node's program shows it in the container last. Error(kTimeout).
void await_folder(const std::filesystem::path& folder, Deadline deadline);

/// Enters a user namespace of its own, for good, with the capabilities that podman gives containers there. This process
/// must have one thread. Errors are system errors.
void become_container_root(const ContainerRoot& root);

/// The environment with the image's variables (containers::kVariableOfImage) under their own names, in place of others
/// of the same name. Pure.
std::vector<std::string> with_variables_of_image(const std::vector<std::string>& environment);

}  // namespace gyre::jobs::node
