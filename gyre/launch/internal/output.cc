#include "gyre/launch/internal/output.h"

#include <fmt/format.h>
#include <limits.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "gyre/base/error.h"

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

Output::Output(int stdout_fd, int stderr_fd, int ranks, bool colour, Patience patience)
    : patience_(patience), rank_width_(std::to_string(ranks - 1).size()), colour_(colour) {
  sinks_ = {Sink{.name = "stdout", .fd = stdout_fd}, Sink{.name = "stderr", .fd = stderr_fd}};
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
  add(target, fmt::format("{}{}\n", prefix(rank, target), text));
}

void Output::line(Stream stream, std::string_view text) {
  Sink& target = sink(stream);
  if (target.failure != 0) return;
  hide_bar(target);
  add(target, fmt::format("{}\n", text));
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
  add(target, fmt::format("{}{}", lines, lines.ends_with('\n') ? "" : "\n"));
}

void Output::add(Sink& sink, std::string_view text) const {
  const bool fits = sink.queue.size() + text.size() <= kBacklogBytes;
  if (sink.left_out == 0 && (fits || !ranks_wait_no_longer(sink))) {
    sink.queue += text;
  } else {
    sink.left_out += text.size();
    sink.all_left_out += text.size();
  }
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
  if (bar_.empty() || bar_visible_ || !all_written()) return;
  sink(bar_stream_).queue += bar_;
  bar_visible_ = true;
  write_queue(sink(bar_stream_));
}

void Output::write_queue(Sink& sink) {
  if (sink.full_since && SteadyClock::now() < sink.retry_at) return;
  std::size_t written = 0;
  int error = 0;
  while (written < sink.queue.size() && sink.failure == 0) {
    // A pipe that polls as writable takes PIPE_BUF bytes without blocking; more is not promised.
    pollfd writable{.fd = sink.fd, .events = POLLOUT, .revents = 0};
    if (::poll(&writable, 1, 0) <= 0) break;
    const std::size_t most = std::min<std::size_t>(sink.queue.size() - written, PIPE_BUF);
    const ssize_t count = ::write(sink.fd, sink.queue.data() + written, most);
    if (count >= 0) {
      written += static_cast<std::size_t>(count);
      continue;
    }
    error = errno;
    // Gone (EPIPE), or a terminal or disk that does not work any more: the job itself goes on.
    const bool for_now = error == EINTR || error == EAGAIN || error == ENOSPC || error == EDQUOT;
    if (!for_now) sink.failure = error;
    break;
  }
  sink.queue.erase(0, sink.failure != 0 ? sink.queue.size() : written);
  if (written > 0) has_room(sink);
  if (error == ENOSPC || error == EDQUOT) has_no_room(sink, error);
  if (sink.failure == 0 || error == 0) return;  // Or it has been said.
  sink.full_since.reset();
  if (sink.failure != EPIPE && &sink == &this->sink(Stream::kStdout)) {
    say(system_error("gyre run: the ranks' output is lost from here on: cannot write to stdout", error).what());
  }
}

void Output::has_no_room(Sink& sink, int error) {
  const auto now = SteadyClock::now();
  sink.retry_at = now + patience_.pause;
  if (sink.full_since) return;
  sink.full_since = now;
  if (&sink == &this->sink(Stream::kStderr)) return;
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(patience_.running).count();
  say(system_error(fmt::format("gyre run: cannot write the ranks' output to stdout; it is tried again, and the ranks "
                               "wait up to {} s for it",
                               seconds),
                   error)
          .what());
}

void Output::has_room(Sink& sink) {
  sink.full_since.reset();
  if (sink.left_out == 0) return;
  sink.queue += fmt::format("gyre run: {} bytes of output are missing here, for which the disk had no room\n",
                            std::exchange(sink.left_out, 0));
}

bool Output::ranks_wait_no_longer(const Sink& sink) const {
  return sink.full_since && SteadyClock::now() >= *sink.full_since + patience_.running;
}

void Output::wait(std::vector<pollfd>& waits, std::optional<SteadyClock::time_point> due) const {
  for (const Sink& each : sinks_) {
    if (each.full_since) {
      due = std::min(due.value_or(each.retry_at), each.retry_at);
    } else if (!each.queue.empty()) {
      waits.push_back({.fd = each.fd, .events = POLLOUT, .revents = 0});
    }
  }
  const auto left = due ? std::chrono::ceil<std::chrono::milliseconds>(*due - SteadyClock::now()).count() : -1;
  ::poll(waits.data(), waits.size(), due ? static_cast<int>(std::max<std::int64_t>(left, 0)) : -1);
}

void Output::finish(int stop_fd) {
  const Deadline room = Deadline::after(patience_.at_end);
  for (;;) {
    flush();
    if (all_written()) return;
    const bool only_full =
        std::ranges::all_of(sinks_, [](const Sink& each) { return each.queue.empty() || each.full_since; });
    if (only_full && room.passed()) return;
    std::vector<pollfd> waits = {{.fd = stop_fd, .events = POLLIN, .revents = 0}};
    wait(waits, std::nullopt);
    // As long as the reader likes (a pager), unless somebody wants us gone.
    if (waits.front().revents != 0) return;
  }
}

bool Output::all_written() const {
  return std::ranges::all_of(sinks_, [](const Sink& each) { return each.queue.empty(); });
}

bool Output::backlogged() const {
  return std::ranges::any_of(
      sinks_, [this](const Sink& each) { return each.queue.size() > kBacklogBytes && !ranks_wait_no_longer(each); });
}

std::string Output::what_is_missing() const {
  for (const Sink& each : sinks_) {
    if (each.failure == EPIPE) continue;
    if (each.failure != 0) return system_error(fmt::format("cannot write to {}", each.name), each.failure).what();
    const std::size_t missing = each.all_left_out + (each.full_since ? each.queue.size() : 0);
    if (missing > 0)
      return fmt::format("{} bytes of {} are missing, for which the disk had no room", missing, each.name);
  }
  return "";
}

}  // namespace gyre::launch
