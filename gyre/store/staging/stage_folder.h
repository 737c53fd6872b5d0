#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "gyre/base/file.h"
#include "gyre/store/staging/stage_log.h"

namespace gyre::store {

/// The folder that is staged to. What is not complete lies in `.gyre-stage` within it, so that a file that has its name
/// is whole. Thread-safe, for different files.
class StageFolder {
 public:
  /// Makes it, and those above it. Error(kIo, kResourceExhausted).
  explicit StageFolder(const std::filesystem::path& folder);

  const std::filesystem::path& path() const { return folder_; }
  std::filesystem::path own() const { return folder_ / kOwnFolder; }
  std::filesystem::path target(const std::string& name) const { return folder_ / name; }

  /// Where an object lies until it is complete: as it is stored, and decompressed.
  std::filesystem::path stored_part(std::uint64_t key) const;
  std::filesystem::path written_part(std::uint64_t key) const;

  /// Gives a part its name, and makes the folders above it. Returns what to write down of it, `crc32c` being that of
  /// its bytes. Error(kIo).
  StageLog::Done publish(const std::filesystem::path& part, const std::string& target, std::uint32_t crc32c) const;

  /// Whether the file that a record tells of is there and unchanged.
  bool holds(const StageLog::Done& done, const std::string& target) const;

  std::uint64_t free_bytes() const;
  /// Everything written so far is on the disk after it.
  void sync() const;
  /// All parts, when nothing is under way.
  void remove_parts() const;

 private:
  std::filesystem::path folder_;
  UniqueFd fd_;
};

/// A file that is written in pieces, in any order; made where it is not there. Error(kIo, kResourceExhausted).
UniqueFd open_for_writing(const std::filesystem::path& path, bool empty);
void write_at(int fd, std::span<const std::byte> bytes, std::uint64_t offset_bytes, const std::filesystem::path& path);
/// Lets the disk begin with what was written to a file, so that a sync at the end finds little to do. Does not wait for
/// it, and never fails.
void begin_writeback(int fd);

/// Of `size_bytes` from `offset_bytes` on, read again from the disk. Error(kIo, kCorruptData where the file ends).
std::uint32_t crc32c_of_file(const std::filesystem::path& path, std::uint64_t offset_bytes, std::uint64_t size_bytes);

}  // namespace gyre::store
