#include "apps/gyre/job_view.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>

#include "apps/gyre/job_place.h"
#include "gyre/base/error.h"
#include "gyre/jobs/resources/json.h"

namespace gyre::app {

namespace {

constexpr std::chrono::seconds kBetweenLooks{1};
constexpr std::chrono::seconds kLongestFull{60};
constexpr int kBetweenTriesMs = 100;

}  // namespace

void JobView::watch(std::string name, Look look) {
  if (!block_.draws()) return;
  name_ = std::move(name);
  look_ = std::move(look);
  tick();
}

void JobView::tick() {
  if (!look_ || SteadyClock::now() - looked_ < kBetweenLooks) return;
  try {
    block_.show(block_of(look_()));
  } catch (const Error& error) {
    // What is asked of the server otherwise is tried again for as long as it may be.
    block_.show({{fmt::format("{}: {}", name_, error.what()), cli::Tone::kDim}});
  }
  looked_ = SteadyClock::now();
}

void JobView::show_log(jobs::client::LogStream stream, std::string_view text) {
  if (block_.draws() || stream != jobs::client::LogStream::kOut) return write(stream, text);
  write_to_stdout(text);
}

void JobView::write_to_stdout(std::string_view text) {
  std::optional<Deadline> room;  // Since the disk is full.
  while (!text.empty()) {
    const ssize_t count = ::write(STDOUT_FILENO, text.data(), text.size());
    const int error = count < 0 ? errno : 0;
    if (count > 0) {
      text.remove_prefix(static_cast<std::size_t>(count));
      room.reset();
    }
    if (count >= 0 || error == EINTR) continue;
    const bool is_full = error == ENOSPC || error == EDQUOT;
    if ((!is_full && error != EAGAIN) || (room && room->passed())) throw system_error("cannot write to stdout", error);
    if (is_full && !room) {
      room = Deadline::after(kLongestFull);
      say(system_error(fmt::format("{}: cannot write the job's output to stdout; it is tried again for up to {} s",
                                   verb_, kLongestFull.count()),
                       error)
              .what());
    }
    meanwhile_();
    // A pipe says when it has room, a disk does not.
    pollfd room_in_pipe{.fd = STDOUT_FILENO, .events = POLLOUT, .revents = 0};
    ::poll(&room_in_pipe, is_full ? 0 : 1, kBetweenTriesMs);
  }
}

void JobView::write(jobs::client::LogStream stream, std::string_view text) {
  block_.write(stream == jobs::client::LogStream::kOut ? stdout : stderr, text);
}

void JobView::say(const std::string& line) { block_.write(stderr, line + "\n"); }

void JobView::end() {
  look_ = nullptr;
  block_.clear();
}

JobView::Look look_at(const Remote& remote, const std::vector<std::string>& environment,
                      const jobs::resources::JobName& job) {
  const auto session = std::make_shared<jobs::client::Session>(remote.session(environment));
  return [session, job] {
    const auto found = jobs::resources::job_from_json(session->get(jobs::client::path_of(job)));
    jobs::client::JobGlance glance = jobs::client::glance_of(found, shown_place(job), wall_clock_us());
    if (found.execution_state == jobs::resources::ExecutionState::kQueued) {
      const auto why =
          jobs::resources::explanation_from_json(session->get(jobs::client::below(jobs::client::path_of(job), "why")));
      glance.detail = "waits: " + why.message;
    }
    return glance;
  };
}

}  // namespace gyre::app
