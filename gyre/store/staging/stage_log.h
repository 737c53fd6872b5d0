#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "gyre/base/file.h"
#include "gyre/base/thread_annotations.h"
#include "gyre/store/staging/manifest.h"

namespace gyre::store {

/// What a folder already holds of what is staged to it: a file of lines, each with its checksum, that is only ever
/// appended to, so that a staging that was killed goes on where it was. What is in it is believed where it was written
/// under this boot of the machine (a killed process loses nothing that it had written), or was followed by a sync;
/// else the files are read again. Thread-safe.
class StageLog {
 public:
  /// A file that is complete.
  struct Done {
    std::uint64_t bytes = 0;      ///< Of the file.
    std::int64_t changed_ns = 0;  ///< Its time of last change.
    std::uint32_t crc32c = 0;
    bool trusted = false;  ///< Else its checksum has to be compared.
  };
  /// One of several pieces of an object that have arrived.
  struct Part {
    std::uint32_t crc32c = 0;
    bool trusted = false;
  };
  struct Record {
    std::optional<Done> done;
    std::map<std::uint32_t, Part> parts{};
  };

  /// In `folder`, which exists. Error(kIo); kInvalidArgument where another process is staging there.
  explicit StageLog(const std::filesystem::path& folder);

  /// What an earlier staging left of an entry; nothing where its source cannot say whether it has changed.
  std::optional<Record> find(const Manifest& manifest, const ManifestEntry& entry) const;

  void add_part(std::uint64_t key, std::uint32_t part, std::uint32_t crc32c) GYRE_EXCLUDES(mutex_);
  void add_done(std::uint64_t key, const Done& done) GYRE_EXCLUDES(mutex_);
  /// Everything before was brought to the disk.
  void add_sync() GYRE_EXCLUDES(mutex_);

  /// Names an object in one version, and what it becomes.
  static std::uint64_t key_of(const Manifest& manifest, const ManifestEntry& entry);

 private:
  void read();
  void read_line(std::string_view line);
  void append(const std::string& words) GYRE_EXCLUDES(mutex_);

  std::string path_;
  UniqueFd fd_;
  Mutex mutex_;
  std::unordered_map<std::uint64_t, Record> records_;  ///< Of earlier stagings; not changed later.
  bool this_boot_ = false;                             ///< While the file is read.
};

}  // namespace gyre::store
