#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "gyre/data/readable_file.h"

namespace gyre::data::internal {

/// The versions of a set's files, in 8 bytes each: what is known of a file (where its records lie, how many there are,
/// what is kept of its contents) is true of that version alone. Thread-safe.
class FileVersions {
 public:
  explicit FileVersions(std::size_t files) : hashes_(files) {}

  /// To be called with each file that is opened. The first version is remembered; Error(kCorruptData) names a file that
  /// has another one now.
  void check(std::size_t number, const ReadableFile& file);

 private:
  std::vector<std::atomic<std::uint64_t>> hashes_;  ///< 0: not opened yet.
};

}  // namespace gyre::data::internal
