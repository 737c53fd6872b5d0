#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <string>
#include <utility>

#include "gyre/base/thread_annotations.h"
#include "gyre/data/internal/file_versions.h"
#include "gyre/data/readable_file.h"

namespace gyre::data::internal {

/// The files that are read from most recently, kept open for all threads: readers of mixed samples go from file to
/// file. Each time a file is opened, its version has to be the first one's. Thread-safe.
class OpenFiles {
 public:
  /// Of a set of so many files.
  OpenFiles(FileOpener open, std::size_t files) : open_(std::move(open)), versions_(files) {}

  /// File `number` of a set, called `name`; errors are those of opening it and of FileVersions::check().
  std::shared_ptr<const ReadableFile> get(std::size_t number, const std::string& name) GYRE_EXCLUDES(mutex_);
  /// The same for a caller that needs it once: it is not kept.
  std::unique_ptr<const ReadableFile> open_once(std::size_t number, const std::string& name);

 private:
  static constexpr std::size_t kMost = 64;

  using Files = std::list<std::pair<std::size_t, std::shared_ptr<const ReadableFile>>>;
  /// It is then the last one of files_.
  std::shared_ptr<const ReadableFile> find(std::size_t number) GYRE_REQUIRES(mutex_);

  const FileOpener open_;
  FileVersions versions_;
  Mutex mutex_;
  Files files_ GYRE_GUARDED_BY(mutex_);  // The least recently used one first.
};

}  // namespace gyre::data::internal
