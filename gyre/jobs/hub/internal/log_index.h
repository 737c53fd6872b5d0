#pragma once

#include <compare>
#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

namespace gyre::jobs::hub::internal {

/// A file of a node's log folder, in one attempt.
struct LogStream {
  std::string attempt;
  std::string node;
  std::string file;

  auto operator<=>(const LogStream&) const = default;
};

/// From its byte `start` on, a stream lies in the job's file `name` from `base` on.
struct LogSegment {
  std::string name;
  std::uint64_t base = 0;
  std::uint64_t start = 0;
};

/// What an attempt's order says of its logs.
struct LogHome {
  int number = 1;                ///< Of the attempt.
  std::string folder;            ///< In the job's.
  std::uint64_t most_bytes = 0;  ///< Of all logs of the job; 0: any number.
};

/// Which stream lies where in a job's log folder. All of it is in one file, a line of JSON for each fact, written
/// before anything depends on it; a last line that is not whole was not written. Not thread-safe.
class LogIndex {
 public:
  /// Error(kIo, kCorruptData).
  explicit LogIndex(std::filesystem::path file);

  /// Nothing where the attempt is not known.
  const LogHome* home(const std::string& attempt) const;
  /// Where the stream goes on; nothing where it has not begun, or another one has the file now.
  std::optional<LogSegment> current(const LogStream& stream) const;
  /// Its offset where another one took its file; 0: none has.
  std::uint64_t pushed_out_at(const LogStream& stream) const;
  /// A name for the stream's next segment: the file's own, unless another node of the attempt, or a later attempt, has
  /// it.
  std::string free_name(const LogStream& stream) const;
  /// Nothing more is kept for the job.
  bool is_full() const { return full_; }

  // Error(kIo, kResourceExhausted).
  void add(const std::string& attempt, const LogHome& home);
  void put(const LogStream& stream, const LogSegment& segment);
  void set_full();

 private:
  void learn(const nlohmann::json& line);
  void append(const nlohmann::json& line);
  int number_of(const std::string& attempt) const;

  const std::filesystem::path file_;
  bool ends_whole_ = true;
  std::map<std::string, LogHome> homes_;
  std::map<LogStream, LogSegment> segments_;
  std::map<std::string, LogStream> owners_;        ///< By the job's file.
  std::map<LogStream, std::uint64_t> pushed_out_;  ///< Of those that own none: their offsets.
  bool full_ = false;
};

}  // namespace gyre::jobs::hub::internal
