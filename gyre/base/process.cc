#include "gyre/base/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <grp.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "gyre/base/check.h"
#include "gyre/base/fork.h"
#include "gyre/base/parse.h"
#include "gyre/base/reach.h"

namespace gyre {

std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name != nullptr ? fmt::format("SIG{}", name) : fmt::format("signal {}", signal);
}

// As system calls: glibc 2.36 declares the functions without extern "C".
UniqueFd open_pidfd(pid_t pid) { return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))); }

bool send_signal(const UniqueFd& pidfd, int signal) {
  return ::syscall(SYS_pidfd_send_signal, pidfd.get(), signal, nullptr, 0) == 0;
}

namespace {

SpawnError spawn_error(const std::string& command, int errno_value, const std::string& file = "") {
  std::string why = system_error("", errno_value).what();
  if (errno_value == ENOENT) why = ": command not found";
  const ErrorCode code = errno_value == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo;
  return {code, fmt::format("cannot start '{}'{}", command, why), errno_value, command, file};
}

/// After the file was found: ENOENT now speaks of what the file itself needs.
SpawnError exec_error(const std::string& command, int errno_value, const std::string& file) {
  if (errno_value != ENOENT && errno_value != ENOEXEC) return spawn_error(command, errno_value, file);
  const char* why = errno_value == ENOENT
                        ? "the interpreter that its first line or header names does not exist"
                        : "neither a program for this machine nor a script with a first line like #!/bin/sh";
  return {ErrorCode::kInvalidArgument, fmt::format("cannot start '{}': {}", command, why), ENOEXEC, command, file};
}

/// PATH has no file of that name, as far as we see.
SpawnError not_in_path(const std::string& command, const std::vector<std::string>& closed) {
  constexpr std::size_t kMostNamed = 3;
  std::string text = fmt::format("cannot start '{}': command not found in any folder of PATH", command);
  if (!closed.empty()) {
    const std::size_t named = std::min(closed.size(), kMostNamed);
    text += fmt::format("; user '{}' cannot look into {}{}", user_name(::geteuid()),
                        fmt::join(closed.begin(), closed.begin() + static_cast<std::ptrdiff_t>(named), ", "),
                        closed.size() > named ? fmt::format(" and {} more", closed.size() - named) : "");
  }
  return {ErrorCode::kNotFound, text, ENOENT, command, ""};
}

/// What the child was doing when it failed.
enum class Step : int { kStart, kCgroup, kUser, kFolder };

struct ChildFailure {
  Step step = Step::kStart;
  int errno_value = EIO;
};

SpawnError child_error(const SpawnOptions& options, const ChildFailure& failure, const std::string& file) {
  const std::string& command = options.argv.front();
  const auto error = [&](const std::string& what) {
    const Error reason = system_error(fmt::format("cannot start '{}': {}", command, what), failure.errno_value);
    return SpawnError(reason.code(), reason.what(), failure.errno_value, command, file);
  };
  switch (failure.step) {
    case Step::kCgroup: return error("it cannot enter its cgroup");
    case Step::kUser: return error(fmt::format("it cannot run as user {}", options.user->user));
    case Step::kFolder: return error(fmt::format("it cannot enter the folder {}", options.folder));
    case Step::kStart: break;
  }
  return exec_error(command, failure.errno_value, file);
}

/// Opened here, where an error can be told; the child writes itself in.
std::vector<UniqueFd> open_cgroups(const SpawnOptions& options) {
  std::vector<UniqueFd> files;
  for (const std::string& folder : options.cgroups) {
    files.emplace_back(::open((folder + "/cgroup.procs").c_str(), O_WRONLY | O_CLOEXEC));
    const int failure = errno;
    if (files.back()) continue;
    const Error reason = system_error(
        fmt::format("cannot start '{}': {} is not a cgroup that it can enter", options.argv.front(), folder), failure);
    throw SpawnError(reason.code(), reason.what(), failure, options.argv.front(), "");
  }
  return files;
}

/// 0 when `path` can be run, else the errno that says why not.
int executable_errno(const std::string& path) {
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0) return errno;
  if (S_ISDIR(status.st_mode)) return EISDIR;
  if (::access(path.c_str(), X_OK) != 0) return errno;
  return 0;
}

std::vector<char*> pointers_to(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

/// What the child needs between fork and exec, prepared before the fork: only async-signal-safe calls are allowed
/// there.
struct ChildPlan {
  const char* program;
  char* const* argv;
  char* const* environment;
  const SpawnOptions& options;
  const std::vector<UniqueFd>& cgroups;
  pid_t parent;
  int null_fd;
  int status_fd;
};

bool become(int fd, int standard_fd) {
  if (fd == standard_fd) return ::fcntl(fd, F_SETFD, 0) == 0;
  return ::dup2(fd, standard_fd) >= 0;
}

bool enter_cgroups(const ChildPlan& plan) {
  for (const UniqueFd& file : plan.cgroups) {
    if (::write(file.get(), "0", 1) != 1) return false;  // 0: whoever writes.
  }
  return true;
}

bool become_user(const UserId& user) {
  // Ourselves, which needs no privilege.
  if (::geteuid() != 0 && user == UserId{.user = ::geteuid(), .group = ::getegid(), .groups = {}}) return true;
  return ::setgroups(user.groups.size(), user.groups.data()) == 0 &&
         ::setresgid(user.group, user.group, user.group) == 0 && ::setresuid(user.user, user.user, user.user) == 0;
}

bool prepare_descriptors(const ChildPlan& plan) {
  const SpawnOptions& options = plan.options;
  if (!become(options.stdin_fd >= 0 ? options.stdin_fd : plan.null_fd, 0) || !become(options.stdout_fd, 1) ||
      !become(options.stderr_fd, 2))
    return false;
  for (const int fd : options.inherited_fds) {
    if (::fcntl(fd, F_SETFD, 0) != 0) return false;
  }
  return true;
}

bool prepare_signals(const ChildPlan& plan) {
  // After the change of user, which takes it back.
  if (plan.options.parent_death_signal != 0) {
    if (::prctl(PR_SET_PDEATHSIG, plan.options.parent_death_signal) != 0) return false;
    if (::getppid() != plan.parent) ::_exit(127);  // It died before we asked for the signal.
  }
  struct sigaction default_action{};
  default_action.sa_handler = SIG_DFL;
  for (const int signal : {SIGPIPE, SIGXFSZ}) {
    if (::sigaction(signal, &default_action, nullptr) != 0) return false;
  }
  sigset_t none;
  ::sigemptyset(&none);
  return ::sigprocmask(SIG_SETMASK, &none, nullptr) == 0;
}

/// Nothing when the child is ready for exec.
std::optional<Step> prepare_child(const ChildPlan& plan) {
  const SpawnOptions& options = plan.options;
  if (options.own_process_group && ::setpgid(0, 0) != 0) return Step::kStart;
  if (!prepare_descriptors(plan)) return Step::kStart;
  if (!enter_cgroups(plan)) return Step::kCgroup;
  if (options.user && !become_user(*options.user)) return Step::kUser;
  if (!options.folder.empty() && ::chdir(options.folder.c_str()) != 0) return Step::kFolder;
  return prepare_signals(plan) ? std::nullopt : std::optional(Step::kStart);
}

[[noreturn]] void run_child(const ChildPlan& plan) {
  const std::optional<Step> failed = prepare_child(plan);
  if (!failed) ::execve(plan.program, plan.argv, plan.environment);
  const ChildFailure failure{failed.value_or(Step::kStart), errno};
  [[maybe_unused]] const ssize_t ignored = ::write(plan.status_fd, &failure, sizeof failure);
  ::_exit(127);
}

}  // namespace

std::string variable_of(const std::vector<std::string>& environment, std::string_view name) {
  for (const std::string& entry : environment) {
    if (entry.size() > name.size() && entry.starts_with(name) && entry[name.size()] == '=') {
      return entry.substr(name.size() + 1);
    }
  }
  return {};
}

std::string find_command(const std::string& command, std::string_view path_variable) {
  if (command.find('/') != std::string::npos) {
    const int failure = executable_errno(command);
    if (failure != 0) throw spawn_error(command, failure, command);
    return command;
  }
  std::string barred;               // The first file of that name that we may not run.
  std::vector<std::string> closed;  // Folders into which we may not look.
  for (const std::string& folder : split(path_variable, ':')) {
    const std::string place = folder.empty() ? "." : folder;
    std::string candidate = place + "/" + command;
    const int failure = executable_errno(candidate);
    if (failure == 0) return candidate;
    if (failure != EACCES) continue;
    struct stat status{};
    const bool is_there = ::lstat(candidate.c_str(), &status) == 0;  // Perhaps as a link to where we may not go.
    if (is_there && barred.empty()) barred = candidate;
    if (!is_there && std::ranges::find(closed, place) == closed.end()) closed.push_back(place);
  }
  if (!barred.empty()) throw spawn_error(command, EACCES, barred);
  throw not_in_path(command, closed);
}

Process Process::spawn(const SpawnOptions& options) {
  GYRE_CHECK(options.argv.size() >= 1U);
  const std::string& command = options.argv.front();
  // A relative path starts where the child will be.
  const bool relative = command.find('/') != std::string::npos && !command.starts_with('/') && !options.folder.empty();
  const std::string program =
      find_command(relative ? options.folder + "/" + command : command, variable_of(options.environment, "PATH"));
  const std::vector<char*> argv = pointers_to(options.argv);
  const std::vector<char*> environment = pointers_to(options.environment);
  const std::vector<UniqueFd> cgroups = open_cgroups(options);
  const UniqueFd null_fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  int status_pipe[2];
  if (!null_fd || ::pipe2(status_pipe, O_CLOEXEC) != 0) throw spawn_error(command, errno);
  const UniqueFd status_read(status_pipe[0]);
  UniqueFd status_write(status_pipe[1]);
  const ChildPlan plan{program.c_str(), argv.data(), environment.data(), options,
                       cgroups,         ::getpid(),  null_fd.get(),      status_write.get()};

  // No handler of ours may run in the child, so nothing is delivered until its mask is set.
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const KeepAllInFork keep;
  const pid_t pid = ::fork();
  if (pid == 0) run_child(plan);
  const int fork_errno = errno;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (pid < 0) throw spawn_error(command, fork_errno);

  Process process(pid, open_pidfd(pid), options.own_process_group);
  if (!process.pidfd_) throw spawn_error(command, errno);
  status_write.reset();
  ChildFailure failure;
  ssize_t count = 0;
  do {
    count = ::read(status_read.get(), &failure, sizeof failure);
  } while (count < 0 && errno == EINTR);
  // The pipe closed without a word: the exec succeeded.
  if (count == 0) return process;
  throw child_error(options, count == sizeof failure ? failure : ChildFailure(), program);
}

Process::Process(Process&& other) noexcept
    : pid_(other.pid_),
      pidfd_(std::move(other.pidfd_)),
      leads_group_(other.leads_group_),
      reaped_(std::exchange(other.reaped_, true)) {}

Process::~Process() {
  if (reaped_) return;
  signal(SIGKILL);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

std::optional<ExitStatus> Process::exit_status() const {
  GYRE_CHECK(!reaped_);
  siginfo_t info{};
  while (::waitid(P_PIDFD, static_cast<id_t>(pidfd_.get()), &info, WEXITED | WNOHANG | WNOWAIT) != 0) {
    if (errno != EINTR) throw system_error(fmt::format("cannot wait for process {}", pid_), errno);
  }
  if (info.si_pid == 0) return std::nullopt;
  if (info.si_code == CLD_EXITED) return ExitStatus{.code = info.si_status, .signal = 0};
  return ExitStatus{.code = 0, .signal = info.si_status};
}

std::optional<ExitStatus> Process::wait(Deadline deadline) const {
  for (;;) {
    if (const auto status = exit_status()) return status;
    if (deadline.passed()) return std::nullopt;
    pollfd ended{.fd = pidfd_.get(), .events = POLLIN, .revents = 0};
    ::poll(&ended, 1, deadline.poll_timeout_ms());
  }
}

void Process::signal(int signal_number) const {
  if (reaped_) return;
  ::kill(leads_group_ ? -pid_ : pid_, signal_number);
}

void Process::reap() {
  if (reaped_) return;
  GYRE_CHECK(exit_status().has_value());
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  reaped_ = true;
}

}  // namespace gyre
