#pragma once

#include <filesystem>

namespace gyre {

/// Removes `path` and all that is below it with the rights of its owner and no others, wherever we are root: for
/// folders that somebody else has filled. Follows no link. Folders that their owner has closed are opened first. The
/// folder above must be one where nobody but us can rename. A path that is not there is fine. Error(kIo) names what
/// stays.
void remove_as_its_owner(const std::filesystem::path& path);

}  // namespace gyre
