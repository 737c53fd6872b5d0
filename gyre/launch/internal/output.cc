#include "gyre/launch/internal/output.h"

#include <fmt/format.h>
#include <limits.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace gyre::launch {

namespace {

constexpr std::string_view kEraseLine = "\r\x1b[K";

/// The beginning of `text` that fits on one line of the terminal, counted in UTF-8 characters.
std::string_view fit_terminal(std::string_view text, int fd) {
  winsize size{};
  if (::ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col < 2) return text;
  std::size_t columns = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool starts_character = (static_cast<unsigned char>(text[i]) & 0xC0) != 0x80;
    if (starts_character && ++columns == size.ws_col) return text.substr(0, i);
  }
  return text;
}

}  // namespace

Output::Output(int stdout_fd, int stderr_fd, int ranks, bool colour)
    : rank_width_(std::to_string(ranks - 1).size()), colour_(colour) {
  sink(Stream::kStdout).fd = stdout_fd;
  sink(Stream::kStderr).fd = stderr_fd;
  for (Sink& each : sinks_) each.terminal = ::isatty(each.fd) == 1;
}

std::string Output::prefix(int rank, const Sink& sink) const {
  std::string plain = fmt::format("[{}]{:{}} ", rank, "", rank_width_ - std::to_string(rank).size());
  if (!colour_ || !sink.terminal) return plain;
  // Cyan, green, yellow, blue, magenta; red is for failures.
  constexpr std::array<int, 5> kColours = {36, 32, 33, 34, 35};
  return fmt::format("\x1b[{}m{}\x1b[0m", kColours[static_cast<std::size_t>(rank) % kColours.size()], plain);
}

void Output::rank_text(int rank, Stream stream, std::string_view text, LineEnd end) {
  if (end == LineEnd::kCarriageReturn) return;
  Sink& target = sink(stream);
  if (rank == bar_rank_ && stream == bar_stream_) end_progress();
  if (target.failure != 0) return;
  // What a terminal would have shown in the end: the text after the last '\r' was kept apart by the splitter.
  hide_bar(target);
  target.queue += prefix(rank, target);
  target.queue += text;
  target.queue += '\n';
}

void Output::line(Stream stream, std::string_view text) {
  Sink& target = sink(stream);
  if (target.failure != 0) return;
  hide_bar(target);
  target.queue += text;
  target.queue += '\n';
}

void Output::progress(int rank, Stream stream, std::string_view text) {
  Sink& target = sink(stream);
  if (!target.terminal || target.failure != 0 || text.empty()) return;
  hide_bar(target);
  bar_ = prefix(rank, target);
  const std::string plain = prefix(rank, Sink{}) + std::string(text);
  const std::string_view fitting = fit_terminal(plain, target.fd);
  bar_ += text.substr(0, fitting.size() - std::min(fitting.size(), plain.size() - text.size()));
  bar_rank_ = rank;
  bar_stream_ = stream;
}

void Output::say(std::string_view lines) {
  Sink& target = sink(Stream::kStderr);
  if (target.failure != 0 || lines.empty()) return;
  hide_bar(target);
  target.queue += lines;
  if (!lines.ends_with('\n')) target.queue += '\n';
}

void Output::end_progress() {
  if (bar_.empty()) return;
  hide_bar(sink(bar_stream_));
  bar_.clear();
}

void Output::keep_progress() {
  bar_.clear();
  bar_visible_ = false;
}

void Output::hide_bar(Sink& sink) {
  if (!bar_visible_ || !sink.terminal) return;
  sink.queue += kEraseLine;
  bar_visible_ = false;
}

void Output::flush() {
  for (Sink& each : sinks_) write_queue(each);
  if (bar_.empty() || bar_visible_ || pending(Stream::kStdout) || pending(Stream::kStderr)) return;
  sink(bar_stream_).queue += bar_;
  bar_visible_ = true;
  write_queue(sink(bar_stream_));
}

void Output::write_queue(Sink& sink) {
  std::size_t written = 0;
  while (written < sink.queue.size() && sink.failure == 0) {
    // A pipe that polls as writable takes PIPE_BUF bytes without blocking; more is not promised.
    pollfd writable{.fd = sink.fd, .events = POLLOUT, .revents = 0};
    if (::poll(&writable, 1, 0) <= 0) break;
    const std::size_t most = std::min<std::size_t>(sink.queue.size() - written, PIPE_BUF);
    const ssize_t count = ::write(sink.fd, sink.queue.data() + written, most);
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) break;
    // Gone (EPIPE), or a terminal or disk that takes no more: the job itself goes on.
    if (count < 0) sink.failure = errno;
    if (count > 0) written += static_cast<std::size_t>(count);
  }
  sink.queue.erase(0, sink.failure != 0 ? sink.queue.size() : written);
}

bool Output::backlogged() const {
  return std::any_of(sinks_.begin(), sinks_.end(), [](const Sink& each) { return each.queue.size() > kBacklogBytes; });
}

}  // namespace gyre::launch
