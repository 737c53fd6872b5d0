#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "gyre/data/readable_file.h"
#include "gyre/store/sources/source.h"

namespace gyre::store {

struct ReadingOptions {
  int connections = 32;                                   ///< That read ahead.
  std::uint64_t memory_bytes = std::uint64_t{256} << 20;  ///< For what was read ahead.
  /// A reading is an error when nothing has arrived for so long.
  std::chrono::milliseconds patience{120'000};
};

/// The files of sources by their URLs (open_source()), and those of this machine by their paths, for the readers of
/// gyre::data: listed once, read in ranges, each in the version that was listed, with what is announced fetched ahead
/// on threads of its own. Thread-safe.
class DataFiles {
 public:
  /// open_source() for some credentials, for example. Called when a URL is used for the first time.
  using OpenSource = std::function<std::unique_ptr<Source>(const std::string& given)>;

  explicit DataFiles(OpenSource open_source, const ReadingOptions& options = {});
  ~DataFiles();
  DataFiles(DataFiles&&) noexcept;
  DataFiles& operator=(DataFiles&&) noexcept;

  /// The name under which a source that a person names is found here, and shown in messages: its URL without what is
  /// secret in it. It may be a pattern: with '*', '?' and '[letters]'. Names of this machine stay as they are.
  /// Error(kInvalidArgument) where two URLs differ in nothing but that.
  std::string add(const std::string& given) const;

  /// Also serves URLs that were not added, if they hold nothing secret. Usable for as long as it is kept.
  data::FileOpener opener() const;

  /// Ends what is under way, and what comes, with Error(kAborted).
  void stop();

 private:
  class Reading;

  std::shared_ptr<Reading> reading_;
};

/// What a loader with such a budget has for reading ahead.
ReadingOptions reading_options(std::uint64_t budget_bytes);

/// What the files of DataFiles with reading_options() take of a loader's memory budget: nothing while all are of this
/// machine.
std::uint64_t read_ahead_bytes(const data::FileOpener& opener, std::uint64_t budget_bytes);

/// Whether a name is a URL of a source, not a path.
bool is_source_url(const std::string& name);

}  // namespace gyre::store
