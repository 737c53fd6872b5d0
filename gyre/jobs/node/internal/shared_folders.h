#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <system_error>

// Folders on a mount in which jobs of several accounts have their own.
namespace gyre::jobs::node::internal {

/// Makes `folder` and those above it that are missing. Where others may write in the folder above, they may write in a
/// new one too, and remove there only what is theirs (the sticky bit). Returns why it could not.
std::error_code make_shared_folders(const std::filesystem::path& folder);

/// Of the nearest folder above `path` that exists, if this process may not write there: whose it is, and the command
/// by which its owner can let others make their own in it, as "; 'X' belongs to …". Else empty. `of_root`: the node
/// program is root's, and makes folders for jobs in those of root. `outside`: the path of a folder for those who do not
/// see the node's mounts.
std::string who_may_open(const std::filesystem::path& path, bool of_root,
                         const std::function<std::filesystem::path(const std::filesystem::path&)>& outside);

}  // namespace gyre::jobs::node::internal
