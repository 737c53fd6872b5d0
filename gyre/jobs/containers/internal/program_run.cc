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
#include "gyre/base/pipe.h"

namespace gyre::jobs::containers::internal {

namespace {

constexpr std::size_t kMostBytes = std::size_t{4} << 20;

/// Our end does not wait.
Pipe make_output_pipe() {
  Pipe pipe = make_pipe();
  ::fcntl(pipe.read.get(), F_SETFL, O_NONBLOCK);
  return pipe;
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
  Pipe out = make_output_pipe();
  Pipe error = make_output_pipe();
  SpawnOptions options;
  options.argv = argv;
  options.environment = environment;
  options.stdout_fd = out.write.get();
  options.stderr_fd = error.write.get();
  options.own_process_group = true;
  options.parent_death_signal = SIGKILL;
  options.folder = "/";
  Process process = Process::spawn(options);
  out.write.reset();
  error.write.reset();
  ProgramOutput result;
  constexpr int kPauseMs = 100;
  for (bool ending = false;;) {
    std::array<pollfd, 4> waits = {{{out.read.get(), POLLIN, 0},
                                    {error.read.get(), POLLIN, 0},
                                    {process.pidfd(), POLLIN, 0},
                                    {interruption.wake_fd, POLLIN, 0}}};
    if (::poll(waits.data(), waits.size(), ending ? kPauseMs : deadline.poll_timeout_ms()) < 0 && errno != EINTR) {
      throw system_error("poll", errno);
    }
    if (out.read && !collect(out.read, result.out)) out.read.reset();
    if (error.read && !collect(error.read, result.error)) error.read.reset();
    if (const auto status = process.exit_status()) {
      // All that it has said itself is in the pipes.
      if (out.read) collect(out.read, result.out);
      if (error.read) collect(error.read, result.error);
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
