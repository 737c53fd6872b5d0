#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gyre/base/file.h"

namespace gyre::jobs::http::internal {

struct ListedFile {
  std::string name;
  bool is_directory = false;
  std::uint64_t bytes = 0;
  std::int64_t modified_us = 0;  ///< Since 1970.
  std::uint64_t inode = 0;
};

struct FileListing {
  std::vector<ListedFile> files;  ///< By name.
  bool has_more = false;
};

/// Regular files and directories of an open directory, by name, those behind `after` only and at most `most`. What
/// open_beneath() refuses is left out. Error(kResourceExhausted) for a directory of more than 100,000 entries.
FileListing list_files(const UniqueFd& directory, const std::string& after, std::size_t most);

}  // namespace gyre::jobs::http::internal
