#include "gyre/data/internal/file_versions.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "gyre/base/bytes.h"
#include "gyre/base/checksum.h"
#include "gyre/base/error.h"

namespace gyre::data::internal {

void FileVersions::check(std::size_t number, const ReadableFile& file) {
  const std::string version = file.version();
  const std::uint64_t hash = std::max<std::uint64_t>(xxh3_64(as_bytes(version)), 1);
  std::uint64_t known = 0;
  if (hashes_.at(number).compare_exchange_strong(known, hash) || known == hash) return;
  throw Error(ErrorCode::kCorruptData,
              fmt::format("{} has changed since it was first opened; what is known of its contents is not true any "
                          "more. Open the data set again",
                          file.name()));
}

}  // namespace gyre::data::internal
