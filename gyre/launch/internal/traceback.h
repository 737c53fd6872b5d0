#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gyre::launch {

/// A Python exception, as its traceback shows it.
struct PythonError {
  std::string place;   ///< "/home/ada/train.py:12, in step": the innermost of the user's own frames; may be empty.
  std::string source;  ///< That line of the file; empty where the traceback does not show it.
  std::string error;   ///< "ValueError: no such optimizer": the first line of what was raised.
};

/// Finds tracebacks in the lines that a Python program writes to stderr. The user's own frames are those outside
/// Python's library and installed packages; where there is none, those outside Python's library, torch and Gyre.
/// Memory is bounded. Not thread-safe.
class TracebackReader {
 public:
  void add(std::string_view line);

  /// Whether a traceback has begun whose exception has not been seen yet.
  bool inside() const { return inside_; }

  /// The latest whole traceback. Of chained ones the last, which ended the program.
  const std::optional<PythonError>& latest() const { return latest_; }

  /// Whether a process that multiprocessing has spawned has failed while it imported the program's script again.
  bool child_failed_to_import() const { return child_failed_to_import_; }

  /// How many lines have followed it.
  std::size_t lines_since() const { return lines_since_; }

 private:
  struct Frame {
    std::string path;
    std::string line;
    std::string function;
    std::string source;
  };

  void add_inside(std::string_view line);
  const Frame* users_frame() const;
  static bool imports_script_again(const Frame& frame);

  std::vector<Frame> frames_;
  bool inside_ = false;
  bool marks_may_follow_ = false;  ///< The line before was a frame's source.
  bool chained_ = false;           ///< The next traceback goes on with the latest.
  bool child_failed_to_import_ = false;
  std::optional<PythonError> latest_;
  std::size_t lines_since_ = 0;
};

}  // namespace gyre::launch
