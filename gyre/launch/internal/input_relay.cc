#include "gyre/launch/internal/input_relay.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "gyre/base/error.h"
#include "gyre/base/pipe.h"
#include "gyre/launch/internal/asks_for_input.h"

namespace gyre::launch {

namespace {

constexpr std::chrono::milliseconds kFirstPause{20};
constexpr std::chrono::milliseconds kLongestPause{1000};

}  // namespace

void InputRelay::Looks::restart() {
  pause = kFirstPause;
  next = SteadyClock::now() + pause;
}

void InputRelay::Looks::later() {
  pause = std::clamp(2 * pause, kFirstPause, kLongestPause);
  next = SteadyClock::now() + pause;
}

InputRelay::InputRelay(int source, bool when_asked)
    : source_(source), when_asked_(when_asked), terminal_(::isatty(source) == 1) {
  Pipe pipe = make_pipe("a pipe for a rank's stdin");
  rank_end_ = std::move(pipe.read);
  our_end_ = std::move(pipe.write);
  // Ours alone: a rank must find an ordinary, blocking stdin.
  ::fcntl(our_end_.get(), F_SETFL, O_NONBLOCK);
}

void InputRelay::started(pid_t process) {
  process_ = process;
  rank_end_.reset();
}

void InputRelay::close() {
  our_end_.reset();
  pending_.clear();
  at_source_ = {};
  at_prompt_ = {};
}

void InputRelay::rank_wrote(bool unfinished) {
  at_prompt_ = {};
  prompted_ = false;
  if (unfinished && our_end_) at_prompt_.restart();
}

bool InputRelay::may_take() const {
  if (terminal_ && ::tcgetpgrp(source_) != ::getpgrp()) return false;  // Reading would stop us.
  if (!when_asked_) return true;
  const Asks asks = asks_for_input(process_);
  // Where the kernel does not say: a line without an end is probably a prompt.
  return asks == Asks::kYes || (asks == Asks::kUnknown && prompted_);
}

InputRelay::Happened InputRelay::advance() {
  Happened happened;
  give();
  if (!our_end_ || process_ == 0) return happened;
  if (at_prompt_.due()) {
    happened.asks = asks_for_input(process_) != Asks::kNo;
    prompted_ = happened.asks;
    if (happened.asks) {
      at_prompt_ = {};
      at_source_ = {};
    } else {
      at_prompt_.later();
    }
  }
  const bool held_back = at_source_.next && !at_source_.due();
  pollfd readable{.fd = source_, .events = POLLIN, .revents = 0};
  if (ended_ || !pending_.empty() || held_back || ::poll(&readable, 1, 0) <= 0) return happened;
  if (may_take()) {
    take(happened);
  } else {
    at_source_.later();
  }
  return happened;
}

void InputRelay::take(Happened& happened) {
  at_source_ = {};
  std::array<char, 4096> buffer;
  const ssize_t count = ::read(source_, buffer.data(), buffer.size());
  if (count < 0 && (errno == EINTR || errno == EAGAIN)) return;
  happened.given = count > 0;
  if (count > 0) {
    pending_.append(buffer.data(), static_cast<std::size_t>(count));
  } else {
    ended_ = true;
  }
  give();
}

void InputRelay::give() {
  while (our_end_ && !pending_.empty()) {
    const ssize_t count = ::write(our_end_.get(), pending_.data(), pending_.size());
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (count < 0) return close();  // The rank wants no more.
    pending_.erase(0, static_cast<std::size_t>(count));
  }
  if (ended_) close();
}

void InputRelay::add_waits(std::vector<pollfd>& waits) const {
  if (!our_end_) return;
  if (!pending_.empty()) {
    waits.push_back({.fd = our_end_.get(), .events = POLLOUT, .revents = 0});
  } else if (!at_source_.next) {
    waits.push_back({.fd = source_, .events = POLLIN, .revents = 0});
  }
}

std::optional<SteadyClock::time_point> InputRelay::due_at() const {
  if (!at_source_.next || !at_prompt_.next) return at_source_.next ? at_source_.next : at_prompt_.next;
  return std::min(*at_source_.next, *at_prompt_.next);
}

}  // namespace gyre::launch
