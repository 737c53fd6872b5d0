#include "gyre/jobs/node/internal/stopped_process.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>

#include "gyre/base/process.h"
#include "gyre/base/process_stat.h"

namespace gyre::jobs::node::internal {

namespace {

constexpr std::chrono::seconds kBetweenLooks{5};
constexpr char kStopped = 'T';
constexpr char kStoppedByTracer = 't';

/// As the kernel shows it; 0: nobody.
pid_t tracer_of(pid_t process) {
  std::ifstream status(fmt::format("/proc/{}/status", process));
  constexpr std::string_view kName = "TracerPid:";
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(kName)) return static_cast<pid_t>(std::atoi(line.c_str() + kName.size()));
  }
  return 0;
}

}  // namespace

void kill_tracer(pid_t process) {
  if (!proc_has_our_numbers()) return;
  const pid_t tracer = tracer_of(process);
  if (tracer <= 1 || tracer == ::getpid()) return;
  const UniqueFd pidfd = open_pidfd(tracer);
  if (pidfd && tracer_of(process) == tracer) send_signal(pidfd, SIGKILL);
}

Deadline StoppedProcess::soon() { return Deadline::after(kBetweenLooks); }

bool StoppedProcess::look(pid_t process) {
  next_ = soon();
  const UniqueFd pidfd = open_pidfd(process);
  const auto stat = read_process_stat(process);
  const char state = pidfd && stat ? stat->state : '\0';
  const bool is_stopped = state == kStopped || state == kStoppedByTracer;
  const bool act = is_stopped && was_stopped_;
  was_stopped_ = is_stopped;
  if (!act) return false;
  if (state == kStoppedByTracer) kill_tracer(process);
  send_signal(pidfd, SIGCONT);
  const bool is_first = !has_acted_;
  has_acted_ = true;
  return is_first;
}

}  // namespace gyre::jobs::node::internal
