#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "gyre/base/file.h"

namespace gyre::jobs::http::internal {

// Files of jobs are read by the service for others, and jobs may put anything there: links, pipes, devices, and another
// thing in the place of a directory at any moment. Nothing outside the job's directories is ever opened.

/// How a path is walked; the second way is for kernels and sandboxes without the first.
enum class Walk {
  kKernel,    ///< openat2(2): links within the directory are followed, those that leave it are refused.
  kStepwise,  ///< One segment at a time; every link is refused.
};

/// The directory `relative` below `root`, where no segment of `relative` is a link. Walks as the system can. Errors:
/// HttpError(404) "DirectoryNotFound", HttpError(403) "LinkLeavesDirectory".
UniqueFd open_directory(const std::filesystem::path& root, const std::filesystem::path& relative);

/// The regular file or directory `relative` below an open directory, for reading; "" is the directory itself.
/// `relative` has no empty or dotted segments. Errors: HttpError(404) "FileNotFound" (also for pipes, devices and
/// sockets, which are never opened), HttpError(403) "LinkLeavesDirectory" and "FileNotReadable".
UniqueFd open_beneath(const UniqueFd& directory, std::string_view relative);
UniqueFd open_beneath(const UniqueFd& directory, std::string_view relative, Walk walk);

}  // namespace gyre::jobs::http::internal
