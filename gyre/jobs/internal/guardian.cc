#include "gyre/jobs/internal/guardian.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "gyre/base/bytes.h"
#include "gyre/base/clock.h"
#include "gyre/base/error.h"
#include "gyre/base/parse.h"
#include "gyre/jobs/internal/sweep.h"

namespace gyre::jobs {

namespace {

/// Through the pipe: a process group to watch, or kStandDown. Written at once, so never cut.
using Message = std::int32_t;
constexpr Message kStandDown = 0;

constexpr char kName[] = "job-guardian";

/// What `ps` and `pkill -f` see: the fork shares the launcher's command line until it writes over its own copy.
void hide_command_line() {
  constexpr std::uint64_t kMostBytes = 4096;
  Bytes bytes;
  try {
    bytes = read_file("/proc/self/stat", kMostBytes);
  } catch (const Error&) {
    return;  // Without /proc it keeps the launcher's name, and guards all the same.
  }
  const std::string_view stat = as_text(bytes);
  // Fields are counted after the command's name, which may itself hold spaces and brackets; see proc(5).
  const std::vector<std::string> fields = split(stat.substr(stat.rfind(')') + 2), ' ');
  constexpr std::size_t kFirstField = 3;
  constexpr std::size_t kArgumentsStart = 48 - kFirstField;
  constexpr std::size_t kArgumentsEnd = 49 - kFirstField;
  if (fields.size() <= kArgumentsEnd) return;
  std::uintptr_t start = 0;
  std::uintptr_t end = 0;
  std::from_chars(fields[kArgumentsStart].data(), fields[kArgumentsStart].data() + fields[kArgumentsStart].size(),
                  start);
  std::from_chars(fields[kArgumentsEnd].data(), fields[kArgumentsEnd].data() + fields[kArgumentsEnd].size(), end);
  if (start == 0 || end < start + sizeof kName) return;
  auto* const arguments = reinterpret_cast<char*>(start);  // Our own argv, which nothing here reads any more.
  std::memset(arguments, 0, end - start);
  std::memcpy(arguments, kName, sizeof kName);
}

void leave_launcher(int pipe_fd) {
  ::setsid();
  ::prctl(PR_SET_NAME, kName);
  sigset_t all;
  ::sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  const int null_fd = ::open("/dev/null", O_RDWR);
  for (int fd = 0; fd <= 2; ++fd) ::dup2(null_fd, fd);
  ::dup2(pipe_fd, 3);
  ::close_range(4, ~0U, 0);
  [[maybe_unused]] const int ignored = ::chdir("/");  // Keeps no folder busy; if it cannot, no harm is done.
  hide_command_line();
}

/// Returns when the launcher is gone (true) or has told us to stand down (false).
bool wait_for_end(std::vector<pid_t>& groups) {
  for (;;) {
    Message message = 0;
    const ssize_t count = ::read(3, &message, sizeof message);
    if (count < 0 && errno == EINTR) continue;
    if (count != sizeof message) return true;
    if (message == kStandDown) return false;
    groups.push_back(message);
  }
}

[[noreturn]] void guard(int pipe_fd, const std::string& marker) {
  std::vector<pid_t> groups;
  leave_launcher(pipe_fd);
  if (wait_for_end(groups)) {
    for (const pid_t group : groups) ::kill(-group, SIGKILL);
    kill_marked_processes(marker, Deadline::after(std::chrono::seconds(10)));
  }
  ::_exit(0);
}

}  // namespace

Guardian::Guardian(const std::string& marker) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw system_error("cannot make the guardian's pipe", errno);
  const UniqueFd read_end(ends[0]);
  pipe_ = UniqueFd(ends[1]);
  pid_ = ::fork();
  if (pid_ < 0) throw system_error("cannot fork the guardian", errno);
  if (pid_ == 0) guard(read_end.get(), marker);
}

Guardian::~Guardian() {
  pipe_.reset();
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void Guardian::watch(pid_t group) { send(group); }

void Guardian::stand_down() { send(kStandDown); }

void Guardian::send(Message message) {
  // Should the guardian have been killed, the job goes on without it; SIGPIPE is ignored while a job runs.
  while (::write(pipe_.get(), &message, sizeof message) < 0 && errno == EINTR) {
  }
}

}  // namespace gyre::jobs
