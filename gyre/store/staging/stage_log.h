#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "gyre/base/file.h"
#include "gyre/base/thread_annotations.h"
#include "gyre/store/staging/manifest.h"

namespace gyre::store {

/// What a folder already holds of what is staged to it: a file of lines, each with its checksum, that is only ever
/// appended to, so that a staging that was killed goes on where it was. Thread-safe.
///
/// What is believed without reading the files again:
/// * what was written under this boot of the machine: a killed process loses nothing that it had written;
/// * what was written before a sync of its own boot had begun that then ended. A sync says nothing of lines of earlier
///   boots, whose bytes may never have reached the disk: where they are found sound, they are written anew.
/// Pieces count from the moment on at which the file that they are in was made.
///
/// Nothing that an older Gyre has written is believed so: its files and pieces count where their checksums fit.
class StageLog {
 public:
  /// A file that is complete.
  struct Done {
    std::uint64_t bytes = 0;      ///< Of the file.
    std::int64_t changed_ns = 0;  ///< Its time of last change.
    std::uint32_t crc32c = 0;
    bool trusted = false;  ///< Else its checksum has to be compared.
    std::size_t line = 0;  ///< Of the log.
    bool older = false;    ///< Written by an older Gyre.
  };
  /// One of several pieces of an object that have arrived.
  struct Part {
    std::uint32_t crc32c = 0;
    bool trusted = false;
    std::size_t line = 0;
    std::uint64_t bytes = 0;  ///< Of a beginning.
  };
  struct Record {
    std::optional<Done> done;
    std::map<std::uint32_t, Part> parts{};
    std::map<std::uint32_t, Part> beginnings{};  ///< Of pieces that were still under way.
  };

  /// A file that an earlier staging has brought, or has found there, as one of a set (begin_set()).
  struct Brought {
    Done done;
    std::uint64_t set = 0;
  };

  /// In `folder`, which exists. Error(kIo); kInvalidArgument where another process is staging there; kUnsupported where
  /// a newer Gyre has.
  explicit StageLog(const std::filesystem::path& folder);

  /// What an earlier staging left of an entry; nothing where its source cannot say whether it has changed.
  std::optional<Record> find(const Manifest& manifest, const ManifestEntry& entry) const;

  /// How many files an older Gyre has staged there.
  std::size_t older_files() const;

  /// By name: what the last staging that had a file has said of it. Logs of older versions have no names.
  const std::unordered_map<std::string, Brought>& brought() const { return brought_; }

  /// The files that are added from now on are of this set.
  void begin_set(std::uint64_t set) GYRE_EXCLUDES(mutex_);
  /// The file of its pieces was made: it is empty.
  void begin_parts(std::uint64_t key) GYRE_EXCLUDES(mutex_);
  void add_part(std::uint64_t key, std::uint32_t part, std::uint32_t crc32c) GYRE_EXCLUDES(mutex_);
  /// So many bytes of its beginning have arrived.
  void add_beginning(std::uint64_t key, std::uint32_t part, std::uint64_t bytes, std::uint32_t crc32c)
      GYRE_EXCLUDES(mutex_);
  /// Its pieces are there no more; the file is called `target`.
  void add_done(std::uint64_t key, const Done& done, const std::string& target) GYRE_EXCLUDES(mutex_);
  /// Before and after everything that had been written until begin_sync() was brought to the disk.
  void begin_sync() GYRE_EXCLUDES(mutex_);
  void end_sync() GYRE_EXCLUDES(mutex_);

  /// Names an object in one version, and what it becomes.
  static std::uint64_t key_of(const Manifest& manifest, const ManifestEntry& entry);

 private:
  /// The lines that one staging, or several under one boot, have written one after the other.
  struct Section {
    std::size_t begin = 0;
    bool this_boot = false;
    bool older = true;  ///< Of an older Gyre, whose lines have no number of their format.
    std::uint64_t set = 0;
    std::optional<std::size_t> syncing{};  ///< The line at which the sync that runs began.
    std::size_t synced = 0;                ///< The line at which the last one began that ended.
  };

  void read();
  void read_line(std::size_t number, const std::string& words, std::vector<Section>& sections);
  void append(const std::string& words) GYRE_EXCLUDES(mutex_);

  std::string path_;
  UniqueFd fd_;
  Mutex mutex_;
  // Of earlier stagings; not changed later.
  std::unordered_map<std::uint64_t, Record> records_;
  std::unordered_map<std::string, Brought> brought_;
};

}  // namespace gyre::store
