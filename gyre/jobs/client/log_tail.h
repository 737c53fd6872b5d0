#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "gyre/jobs/client/log_lines.h"
#include "gyre/jobs/client/log_source.h"

namespace gyre::jobs::client {

/// How long a follower pauses after nothing has come for `quiet`. `has_logs`: something has come before. Pure.
std::chrono::milliseconds pause_after(std::chrono::milliseconds quiet, bool has_logs);

/// Reads a job's logs, in parts, as they grow: each byte once, whatever happens to server and connection in between. A
/// job that was queued again may have new files of the same names: those are read from their beginning. Not
/// thread-safe.
class LogTail {
 public:
  /// `files`: only these, as they are; all logs of the job's processes where it is empty. `begins_again`: called with
  /// the number of each further attempt, before what is read of it.
  LogTail(
      LogSource& source, std::set<std::string> files, LogLines::Sink sink,
      std::function<void(int attempt)> begins_again = [](int) {});

  /// What is new since the last call. True when nothing comes any more: the job has ended, and everything was read.
  bool read_new();

  /// What there is now, also lines and characters that have not ended. True as read_new().
  bool read_all();

  /// Calls read_new() until it is true: often while something comes, about once a second while nothing does; and
  /// `meanwhile` in between.
  void follow(const std::function<void()>& meanwhile = [] {});

  /// Whether anything was read at all.
  bool found_logs() const { return !shown_.empty(); }

 private:
  struct Shown {
    std::string identity{};  ///< Of the file.
    std::uint64_t bytes = 0;
  };

  /// Whether nothing comes any more, as was known before the files were listed; nothing where the job has no log
  /// directory yet.
  std::optional<bool> read_listed();
  void read_file(const LogFile& file);

  LogSource& source_;
  std::set<std::string> files_;
  LogLines lines_;
  const std::function<void(int attempt)> begins_again_;
  int attempts_ = 0;
  std::map<std::string, Shown> shown_;  // By file name.
  bool has_new_ = false;
};

}  // namespace gyre::jobs::client
