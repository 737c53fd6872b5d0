#pragma once

#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "gyre/base/file.h"
#include "gyre/launch/internal/line_splitter.h"
#include "gyre/launch/internal/output.h"
#include "gyre/launch/internal/tail_buffer.h"

namespace gyre::launch {

/// For RankOutput's `shown`: stdout is 1, stderr 2.
constexpr int kShowBoth = 3;

/// What one rank writes, on its way to the launcher's output, its log file and the report of its end. Not thread-safe.
class RankOutput {
 public:
  /// `log` may be empty. `shown`: 1 stdout, 2 stderr, 3 both go to the output as well.
  RankOutput(int rank, UniqueFd log, int shown) : rank_(rank), log_(std::move(log)), shown_(shown) {}

  /// Empty bytes: the stream has ended.
  void add(Stream stream, std::string_view bytes, Output& output);

  const TailBuffer& tail() const { return tail_; }
  /// Why the log file has stopped growing, if it has; said once.
  std::string take_log_failure() { return std::exchange(log_failure_, {}); }

 private:
  bool is_shown(Stream stream) const { return (shown_ & (1 << static_cast<int>(stream))) != 0; }
  LineSplitter::Sink sink_for(Stream stream, Output& output);
  void write_log(std::string_view text);

  int rank_;
  std::array<LineSplitter, kStreams> lines_;
  UniqueFd log_;
  int shown_;
  std::string log_pending_;
  std::string log_failure_;
  TailBuffer tail_;
};

}  // namespace gyre::launch
