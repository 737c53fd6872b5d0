#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

namespace gyre::jobs::client {

inline constexpr std::uint64_t kMostCodeBytes = std::uint64_t{256} << 20;
inline constexpr std::size_t kMostCodeFiles = 20'000;

struct CodeArchive {
  std::string bytes;  ///< A tar archive (pax).
  std::string sha256;
  std::size_t files = 0;
};

/// The files, folders and links of `folder`, but for .git and for what its .gyreignore, or else its .gitignore, leaves
/// out, and that of each folder in it for what is there; the same bytes for the same
/// files. Error(kInvalidArgument) names a link that leads out of it, what is neither file, folder nor link, a file that
/// holds a token or a key of Gyre's, and a folder beyond the limits, with the largest of its parts; Error(kIo).
CodeArchive archive_code(const std::filesystem::path& folder);

}  // namespace gyre::jobs::client
