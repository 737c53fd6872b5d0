#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace gyre::jobs::client {

/// Where a piece of a log goes.
enum class LogStream { kOut, kError };

/// Whether a file of a job's log directory is a log of its processes, which names end a "stdout…txt" or "stderr…txt".
bool is_log(std::string_view name);

/// The last lines of a text, at most `most` of them.
std::string_view last_lines(std::string_view text, std::size_t most);

/// What a terminal would show of the last line of a log that is not empty, of which `tail` is the end. `rank`: of a log
/// of all ranks, as `gyre run` writes it ("[3] …"), that rank's last line without its mark; empty where `tail` has
/// none.
std::string_view last_line(std::string_view tail, std::optional<int> rank = std::nullopt);

/// Makes one readable stream of the files of a job's log directory: "stdout.txt" and "stderr.txt" as they are, lines of
/// any other file with its name in front ("[job_prep] …"). Pieces never split a character of UTF-8, unless the file
/// does. Not thread-safe.
class LogLines {
 public:
  using Sink = std::function<void(LogStream stream, std::string_view text)>;

  /// Not `labelled`: all files as they are, to kOut.
  explicit LogLines(Sink sink, bool labelled = true) : sink_(std::move(sink)), labelled_(labelled) {}

  /// The next bytes of that file.
  void add(const std::string& file, std::string_view bytes);
  /// What is left of a file that has ended: lines without an end get one where they have a name in front.
  void finish(const std::string& file);
  /// Of all files.
  void finish();

 private:
  std::string_view label_of(std::string_view file) const;
  LogStream stream_of(std::string_view file) const;

  Sink sink_;
  bool labelled_;
  std::map<std::string, std::string> unfinished_;  // The beginning of a line or character, by file.
};

}  // namespace gyre::jobs::client
