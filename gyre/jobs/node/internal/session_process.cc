#include "gyre/jobs/node/internal/session_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <system_error>
#include <utility>

#include "gyre/base/error.h"
#include "gyre/base/pipe.h"
#include "gyre/base/process.h"
#include "gyre/jobs/node/internal/launch_specification.h"

namespace gyre::jobs::node::internal {

using orders::CommandRequest;
using orders::TerminalSize;

namespace {

constexpr int kCannotRun = 126;

void make_nonblocking(const UniqueFd& fd) { ::fcntl(fd.get(), F_SETFL, ::fcntl(fd.get(), F_GETFL) | O_NONBLOCK); }

winsize as_winsize(TerminalSize size) {
  winsize result{};
  result.ws_col = size.columns;
  result.ws_row = size.rows;
  return result;
}

/// Both sides of a new terminal.
struct TerminalPair {
  UniqueFd control;
  UniqueFd end;
};

TerminalPair make_terminal(TerminalSize size) {
  TerminalPair pair;
  pair.control = UniqueFd(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  std::array<char, 128> name{};
  if (!pair.control || ::grantpt(pair.control.get()) != 0 || ::unlockpt(pair.control.get()) != 0 ||
      ::ptsname_r(pair.control.get(), name.data(), name.size()) != 0) {
    throw system_error("cannot make a terminal", errno);
  }
  pair.end = UniqueFd(::open(name.data(), O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (!pair.end) throw system_error("cannot open a new terminal", errno);
  termios modes{};
  if (::tcgetattr(pair.end.get(), &modes) == 0) {
    modes.c_iflag |= IUTF8;
    ::tcsetattr(pair.end.get(), TCSANOW, &modes);
  }
  const winsize window = as_winsize(size);
  ::ioctl(pair.end.get(), TIOCSWINSZ, &window);
  return pair;
}

void set(std::vector<std::string>& environment, const std::string& name, const std::string& value) {
  std::erase_if(environment, [&](const std::string& entry) { return entry.starts_with(name + "="); });
  environment.push_back(name + "=" + value);
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

SessionProcess::SessionProcess(const CommandRequest& request, std::vector<std::string> environment)
    : has_terminal_(request.terminal.has_value()) {
  std::vector<std::string> words = request.words;
  if (words.empty()) words = {shell_program()};
  const std::string file = find_command(words.front(), variable_of(environment, "PATH"));
  if (request.terminal) {
    if (!request.terminal->type.empty()) set(environment, "TERM", request.terminal->type);
    TerminalPair pair = make_terminal(request.terminal->size);
    make_nonblocking(pair.control);
    ends_.input = UniqueFd(::fcntl(pair.control.get(), F_DUPFD_CLOEXEC, 0));
    if (!ends_.input) throw system_error("cannot open a new terminal", errno);
    ends_.output = std::move(pair.control);
    const int end = pair.end.get();
    start(words, file, std::move(environment), {end, end, end}, end);
    return;
  }
  Pipe input = make_pipe();
  Pipe output = make_pipe();
  Pipe errors = make_pipe();
  ends_ = {std::move(input.write), std::move(output.read), std::move(errors.read)};
  for (const UniqueFd* end : {&ends_.input, &ends_.output, &ends_.errors}) make_nonblocking(*end);
  start(words, file, std::move(environment), {input.read.get(), output.write.get(), errors.write.get()}, -1);
}

void SessionProcess::start(const std::vector<std::string>& words, const std::string& file,
                           std::vector<std::string> environment, const std::array<int, 3>& descriptors, int terminal) {
  std::vector<std::string> arguments = words;
  const std::vector<char*> argv = pointers_to(arguments);
  const std::vector<char*> variables = pointers_to(environment);
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ < 0) throw system_error("cannot start a process", errno);
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(kCannotRun);
    ::setsid();
    if (terminal >= 0) ::ioctl(terminal, TIOCSCTTY, 0);
    for (int number = 0; number < 3; ++number) ::dup2(descriptors[static_cast<std::size_t>(number)], number);
    for (int signal = 1; signal < NSIG; ++signal) ::signal(signal, SIG_DFL);
    sigset_t none;
    ::sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    ::execve(file.c_str(), argv.data(), variables.data());
    const std::string sentence =
        fmt::format("gyre job shell: cannot run {}: {}\n", file, std::generic_category().message(errno));
    [[maybe_unused]] const ssize_t ignored = ::write(STDERR_FILENO, sentence.data(), sentence.size());
    ::_exit(kCannotRun);
  }
  pidfd_ = open_pidfd(pid_);
  if (!pidfd_) throw system_error("cannot watch a process", errno);
}

SessionProcess::~SessionProcess() {
  if (pid_ < 0) return;
  if (!exit_code()) kill();  // What it has left in the background goes on, as after ssh.
  ::waitpid(pid_, nullptr, 0);
}

void SessionProcess::resize(TerminalSize size) const {
  const winsize window = as_winsize(size);
  if (has_terminal_ && ends_.output) ::ioctl(ends_.output.get(), TIOCSWINSZ, &window);
}

char SessionProcess::end_of_input() const {
  termios modes{};
  const bool known = ends_.output && ::tcgetattr(ends_.output.get(), &modes) == 0;
  return known ? static_cast<char>(modes.c_cc[VEOF]) : '\x04';
}

bool SessionProcess::has_unread_input() const {
  const UniqueFd end(ends_.output ? ::ioctl(ends_.output.get(), TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC) : -1);
  pollfd look{.fd = end.get(), .events = POLLIN, .revents = 0};
  return !end || ::poll(&look, 1, 0) != 0;
}

std::optional<int> SessionProcess::exit_code() const {
  siginfo_t info{};
  // Its number, and that of its group and session, stay ours.
  if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) {
    return std::nullopt;
  }
  return info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;
}

void SessionProcess::hang_up() {
  if (has_terminal_ && ends_.output) foreground_ = ::tcgetpgrp(ends_.output.get());
  ends_ = {};
  ::kill(-pid_, SIGHUP);
  ::kill(-pid_, SIGCONT);  // One that was stopped could not end.
}

void SessionProcess::kill() const {
  ::kill(-pid_, SIGKILL);
  if (foreground_ > 0 && foreground_ != pid_ && ::getsid(foreground_) == pid_) ::kill(-foreground_, SIGKILL);
}

}  // namespace gyre::jobs::node::internal
