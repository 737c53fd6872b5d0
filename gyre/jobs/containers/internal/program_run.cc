#include "gyre/jobs/containers/internal/program_run.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>

#include "gyre/base/error.h"
#include "gyre/base/file.h"

namespace gyre::jobs::containers::internal {

namespace {

constexpr std::size_t kMostBytes = std::size_t{4} << 20;

struct Pipe {
  UniqueFd ours;
  UniqueFd its;
};

Pipe make_pipe() {
  std::array<int, 2> ends;
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw system_error("cannot make a pipe", errno);
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

/// Reads what is there; false at its end.
bool collect(const UniqueFd& pipe, std::string& text) {
  std::array<char, std::size_t{16} << 10> bytes;
  for (;;) {
    const ssize_t count = ::read(pipe.get(), bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno == EAGAIN;
    if (count == 0) return false;
    text.append(bytes.data(), static_cast<std::size_t>(count));
    if (text.size() > kMostBytes) text.erase(0, kMostBytes / 2);  // The end says why it has failed.
  }
}

}  // namespace

ProgramOutput run_program(const std::vector<std::string>& argv, const std::vector<std::string>& environment,
                          Deadline deadline, const Interruption& interruption, const std::function<bool(pid_t)>& end) {
  Pipe out = make_pipe();
  Pipe error = make_pipe();
  SpawnOptions options;
  options.argv = argv;
  options.environment = environment;
  options.stdout_fd = out.its.get();
  options.stderr_fd = error.its.get();
  options.own_process_group = true;
  options.parent_death_signal = SIGKILL;
  options.folder = "/";
  Process process = Process::spawn(options);
  out.its.reset();
  error.its.reset();
  ProgramOutput result;
  constexpr int kPauseMs = 100;
  for (bool ending = false;;) {
    std::array<pollfd, 4> waits = {{{out.ours.get(), POLLIN, 0},
                                    {error.ours.get(), POLLIN, 0},
                                    {process.pidfd(), POLLIN, 0},
                                    {interruption.wake_fd, POLLIN, 0}}};
    if (::poll(waits.data(), waits.size(), ending ? kPauseMs : deadline.poll_timeout_ms()) < 0 && errno != EINTR) {
      throw system_error("poll", errno);
    }
    if (out.ours && !collect(out.ours, result.out)) out.ours.reset();
    if (error.ours && !collect(error.ours, result.error)) error.ours.reset();
    if (const auto status = process.exit_status()) {
      // All that it has said itself is in the pipes.
      if (out.ours) collect(out.ours, result.out);
      if (error.ours) collect(error.ours, result.error);
      result.status = *status;
      process.reap();
      return result;
    }
    ending = ending || (end && ((interruption.wanted && interruption.wanted()) || deadline.passed()));
    if (ending && !end(process.pid())) continue;
    if (ending || (interruption.wanted && interruption.wanted())) {
      throw Error(ErrorCode::kAborted, fmt::format("{} was given up", argv.front()));
    }
    if (deadline.passed()) throw Error(ErrorCode::kTimeout, fmt::format("{} has not answered in time", argv.front()));
  }
}

}  // namespace gyre::jobs::containers::internal
