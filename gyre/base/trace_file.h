#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "gyre/base/file.h"

namespace gyre {

/// What ends a trace file, and is overwritten by the next events: all before it stays as it is.
inline constexpr std::string_view kTraceClosing = "\n]\n";

/// A file that holds one JSON array of trace events (Chrome's format), and is valid after every append: each one
/// overwrites the closing bracket and brings its own. One event a line.
///
/// A write that crosses from one page of memory into the next can be cut there by SIGKILL, and only there; what is
/// left is mended by complete_trace_file(), which `gyre run` calls at the end of a job. Not thread-safe.
class TraceFile {
 public:
  /// Creates or empties the file. `first_event` is one JSON object. Error when it cannot be written.
  TraceFile(const std::filesystem::path& path, std::string_view first_event);

  /// Appends lines of the form ",\n{event}". Where that fails (a full disk) the file is left as it was, valid, and
  /// the Error says why.
  void append(std::string_view events);
  /// Without the closing bracket.
  std::int64_t bytes() const { return closing_offset_; }

 private:
  std::string path_;
  UniqueFd file_;
  std::int64_t closing_offset_ = 0;
};

/// Ends a trace file whose writer was killed in the middle of a line: drops the torn line and closes the array. Does
/// nothing to a file that is whole. False when there is no such file or it is none of ours.
bool complete_trace_file(const std::filesystem::path& path);

}  // namespace gyre
