#pragma once

#include <filesystem>

namespace gyre {

/// Makes a folder, absolute, and those above it, mode 0755, without going through a symbolic link: for those who act
/// with more rights than whoever may have put a link there. Error(kIo) names the part that is not a folder, or cannot
/// be made.
void make_folder_without_links(const std::filesystem::path& folder);

}  // namespace gyre
