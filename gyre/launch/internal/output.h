#pragma once

#include <poll.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gyre/base/clock.h"
#include "gyre/launch/internal/line_splitter.h"
#include "gyre/launch/rank_set.h"

namespace gyre::launch {

/// Writes the ranks' lines, each with its rank in front, to the launcher's stdout and stderr. Lines are queued and
/// written without ever blocking, so that a reader who has stopped reading cannot keep the launcher from ending a job.
/// On a terminal, rank 0's progress bar stays on the last line while other lines pass above it.
///
/// A file whose disk is full is tried again. Until there is room nothing is lost: the queue grows to kBacklogBytes,
/// then the ranks wait. After Patience::running they go on, and what does not fit into the queue is left out; a line in
/// its place says so, once there is room. Not thread-safe.
class Output {
 public:
  /// Above this many queued bytes nothing more should be read from the ranks.
  static constexpr std::size_t kBacklogBytes = std::size_t{256} << 10;

  /// With a full disk.
  struct Patience {
    std::chrono::milliseconds pause{100};       ///< Between two tries.
    std::chrono::milliseconds running{60'000};  ///< How long ranks wait.
    std::chrono::milliseconds at_end{10'000};   ///< How long finish() does.
  };

  Output(int stdout_fd, int stderr_fd, int ranks, bool colour) : Output(stdout_fd, stderr_fd, ranks, colour, {}) {}
  Output(int stdout_fd, int stderr_fd, int ranks, bool colour, Patience patience);

  /// One piece of a rank's stream. Text that is overwritten later (kCarriageReturn) is left out.
  void rank_text(int rank, Stream stream, std::string_view text, LineEnd end);
  /// An unfinished line: rank 0's progress bar, or a rank's prompt; shown on terminals only.
  void progress(int rank, Stream stream, std::string_view text);
  /// A line of a rank that has its rank in front already.
  void line(Stream stream, std::string_view text);
  /// The launcher's own words, on stderr; whole lines.
  void say(std::string_view lines);
  /// Takes the progress bar from the screen.
  void end_progress();
  /// Leaves it there for good: the person has ended that line.
  void keep_progress();

  /// Writes what can be written now.
  void flush();
  /// poll(2) until `due`, or until flush() has something to do, whose descriptors are added to `waits`.
  void wait(std::vector<pollfd>& waits, std::optional<SteadyClock::time_point> due) const;
  /// Writes all that is queued, however long a reader takes, until `stop_fd` can be read. Blocks.
  void finish(int stop_fd);

  bool backlogged() const;
  bool is_terminal(Stream stream) const { return sink(stream).terminal; }
  /// Nobody reads stdout any more.
  bool reader_has_gone() const { return sink(Stream::kStdout).failure == EPIPE; }
  /// Whether output was left out, or could not be written: a sentence about stdout, else about stderr; empty: it was
  /// written, or its reader has gone.
  std::string what_is_missing() const;

 private:
  struct Sink {
    const char* name = "";
    int fd = -1;
    bool terminal = false;
    int failure = 0;  ///< An errno, after which nothing is written there any more.
    std::string queue = {};
    std::optional<SteadyClock::time_point> full_since = {};  ///< The disk has had no room since.
    SteadyClock::time_point retry_at = {};                   ///< With full_since.
    std::size_t left_out = 0;                                ///< Bytes after those of the queue.
    std::size_t all_left_out = 0;
  };

  Sink& sink(Stream stream) { return sinks_[static_cast<std::size_t>(stream)]; }
  const Sink& sink(Stream stream) const { return sinks_[static_cast<std::size_t>(stream)]; }
  std::string prefix(int rank, const Sink& sink) const;
  void add(Sink& sink, std::string_view text) const;
  bool ranks_wait_no_longer(const Sink& sink) const;
  void hide_bar(Sink& sink);
  void write_queue(Sink& sink);
  void has_no_room(Sink& sink, int error);
  void has_room(Sink& sink);
  bool all_written() const;

  Patience patience_;
  std::array<Sink, kStreams> sinks_;
  std::size_t rank_width_;
  bool colour_;
  std::string bar_;  ///< With its prefix; empty when there is none.
  int bar_rank_ = 0;
  bool bar_visible_ = false;
  Stream bar_stream_ = Stream::kStderr;
};

}  // namespace gyre::launch
