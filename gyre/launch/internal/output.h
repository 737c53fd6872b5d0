#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "gyre/launch/internal/line_splitter.h"
#include "gyre/launch/rank_set.h"

namespace gyre::launch {

/// Writes the ranks' lines, each with its rank in front, to the launcher's stdout and stderr. Lines are queued and
/// written without ever blocking, so that a reader who has stopped reading cannot keep the launcher from ending a job.
/// On a terminal, rank 0's progress bar stays on the last line while other lines pass above it. Not thread-safe.
class Output {
 public:
  /// Above this many queued bytes nothing more should be read from the ranks.
  static constexpr std::size_t kBacklogBytes = std::size_t{256} << 10;

  Output(int stdout_fd, int stderr_fd, int ranks, bool colour);

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

  bool backlogged() const;
  bool pending(Stream stream) const { return !sink(stream).queue.empty(); }
  int fd(Stream stream) const { return sink(stream).fd; }
  bool is_terminal(Stream stream) const { return sink(stream).terminal; }
  /// The errno with which writing to stdout failed, after which nothing is written there any more; 0 while it works.
  int stdout_failure() const { return sink(Stream::kStdout).failure; }

 private:
  struct Sink {
    int fd = -1;
    bool terminal = false;
    int failure = 0;
    std::string queue;
  };

  Sink& sink(Stream stream) { return sinks_[static_cast<std::size_t>(stream)]; }
  const Sink& sink(Stream stream) const { return sinks_[static_cast<std::size_t>(stream)]; }
  std::string prefix(int rank, const Sink& sink) const;
  void hide_bar(Sink& sink);
  static void write_queue(Sink& sink);

  std::array<Sink, 2> sinks_;
  std::size_t rank_width_;
  bool colour_;
  std::string bar_;  ///< With its prefix; empty when there is none.
  int bar_rank_ = 0;
  bool bar_visible_ = false;
  Stream bar_stream_ = Stream::kStderr;
};

}  // namespace gyre::launch
