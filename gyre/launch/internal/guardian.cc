#include "gyre/launch/internal/guardian.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "gyre/base/clock.h"
#include "gyre/base/error.h"
#include "gyre/base/fork.h"
#include "gyre/base/process.h"
#include "gyre/base/process_stat.h"
#include "gyre/launch/sweep.h"

namespace gyre::launch {

namespace {

/// Through the socket: a process group to watch, or one of these. Written at once, so never cut.
using Message = std::int32_t;
constexpr Message kStandDown = 0;
constexpr Message kKillNow = -1;

constexpr const auto& kName = kGuardianName;

/// What it holds open beside /dev/null.
constexpr int kSocket = 3;
constexpr int kLauncher = 4;

constexpr std::chrono::seconds kSweepTime{10};

/// What `ps` and `pkill -f` see: the fork shares the launcher's command line until it writes over its own copy.
void hide_command_line() {
  const std::optional<ProcessStat> stat = read_process_stat(::getpid());
  // Without /proc it keeps the launcher's name, and guards all the same.
  if (!stat || stat->arguments_start == 0 || stat->arguments_end < stat->arguments_start + sizeof kName) return;
  auto* const arguments = reinterpret_cast<char*>(stat->arguments_start);  // Our own argv, which nothing here reads.
  std::memset(arguments, 0, stat->arguments_end - stat->arguments_start);
  std::memcpy(arguments, kName, sizeof kName);
}

void leave_launcher(int socket_fd, int launcher_fd) {
  ::setsid();
  ::prctl(PR_SET_NAME, kName);
  sigset_t all;
  ::sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  const int null_fd = ::open("/dev/null", O_RDWR);
  for (int fd = 0; fd <= 2; ++fd) ::dup2(null_fd, fd);
  const int launcher_copy = ::fcntl(launcher_fd, F_DUPFD, kLauncher + 1);  // The next line may close the original.
  ::dup2(socket_fd, kSocket);
  ::dup2(launcher_copy, kLauncher);
  ::close_range(kLauncher + 1, ~0U, 0);
  [[maybe_unused]] const int ignored = ::chdir("/");  // Keeps no folder busy; if it cannot, no harm is done.
  hide_command_line();
}

enum class Ending : std::uint8_t { kLauncherGone, kAskedToKill, kStoodDown };

Ending wait_for_end(std::vector<pid_t>& groups) {
  for (;;) {
    Message message = 0;
    const ssize_t count = ::read(kSocket, &message, sizeof message);
    if (count < 0 && errno == EINTR) continue;
    if (count != sizeof message) return Ending::kLauncherGone;
    if (message == kStandDown) return Ending::kStoodDown;
    if (message == kKillNow) return Ending::kAskedToKill;
    groups.push_back(message);
  }
}

/// The socket closes before the launcher's children get the signal of its death: until then one that it has just forked
/// may still start something.
void wait_for_launchers_death(Deadline deadline) {
  pollfd ended{.fd = kLauncher, .events = POLLIN, .revents = 0};
  ::poll(&ended, 1, deadline.poll_timeout_ms());
}

[[noreturn]] void guard(int socket_fd, int launcher_fd, const std::string& marker) {
  std::vector<pid_t> groups;
  leave_launcher(socket_fd, launcher_fd);
  const Ending ending = wait_for_end(groups);
  if (ending == Ending::kStoodDown) ::_exit(0);
  const Deadline deadline = Deadline::after(kSweepTime);
  for (const pid_t group : groups) ::kill(-group, SIGKILL);
  if (ending == Ending::kLauncherGone) wait_for_launchers_death(deadline);
  kill_marked_processes(marker, deadline);
  ::_exit(0);
}

}  // namespace

Guardian::Guardian(const std::string& marker) {
  int ends[2];
  // Not a pipe: writing to one whose reader was killed would raise SIGPIPE in whatever process this is.
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    throw system_error("cannot make the guardian's socket", errno);
  }
  const UniqueFd guardians(ends[0]);
  socket_ = UniqueFd(ends[1]);
  const UniqueFd launcher = open_pidfd(::getpid());
  if (!launcher) throw system_error("cannot watch the launcher", errno);
  const KeepAllInFork keep;
  pid_ = ::fork();
  if (pid_ < 0) throw system_error("cannot fork the guardian", errno);
  if (pid_ == 0) guard(guardians.get(), launcher.get(), marker);
}

Guardian::~Guardian() {
  send(kKillNow);  // Unless it has stood down and is gone.
  socket_.reset();
  ::kill(pid_, SIGCONT);  // The job, which has the same account, may have stopped it.
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void Guardian::watch(pid_t group) { send(group); }

void Guardian::stand_down() { send(kStandDown); }

void Guardian::send(Message message) {
  // Should the guardian have been killed, the job goes on without it.
  while (::send(socket_.get(), &message, sizeof message, MSG_NOSIGNAL) < 0 && errno == EINTR) {
  }
}

}  // namespace gyre::launch
