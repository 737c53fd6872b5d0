#pragma once

#include <filesystem>
#include <string>
#include <vector>

// An attempt in a container (ADR 130). The container's first process, the holder, outlives processes of attempts and
// node programs, as `gyre launch` does. A node program reaches it by a child of its own, which stands for the process
// inside: it passes descriptors in, ends as that process ends, and takes it along when it is killed.
namespace gyre::jobs::node {

/// Under which numbers the process inside has the descriptors of its entry.
inline constexpr int kChannelInContainer = 700;
inline constexpr int kCodeInContainer = 701;

/// What one process of an attempt inside needs.
struct ContainerEntry {
  std::filesystem::path socket;  ///< Of the holder.
  int channel = -1;              ///< To the node program.
  int code = -1;                 ///< The archive of the job's code; negative: there is none.
};

/// Starts the process of the attempt in the container, as often as it is asked to at `socket`, one at a time, and reaps
/// whatever has lost its parent. `program`: ours, in the container. `environment`: the image's. Never returns but with
/// an error.
[[noreturn]] void hold_container(const std::filesystem::path& socket, const std::string& program,
                                 const std::vector<std::string>& environment);

/// Has the holder start the process, with stdout as its output, and waits for its end. Its marks come of `environment`.
/// Returns its exit code, or 128 + signal. gyre::Error.
int enter_container(const ContainerEntry& entry, const std::vector<std::string>& environment);

}  // namespace gyre::jobs::node
