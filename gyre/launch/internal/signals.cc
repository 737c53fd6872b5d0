#include "gyre/launch/internal/signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "gyre/base/error.h"

namespace gyre::launch {

SignalSource::SignalSource() {
  sigset_t handled;
  ::sigemptyset(&handled);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP}) {
    struct sigaction action{};
    ::sigaction(signal, nullptr, &action);
    if (action.sa_handler != SIG_IGN) ::sigaddset(&handled, signal);
  }
  fd_ = UniqueFd(::signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd_) throw system_error("cannot watch for signals", errno);
  ::sigprocmask(SIG_BLOCK, &handled, &mask_before_);
  struct sigaction action{};
  action.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &action, &pipe_before_);
  ::sigaction(SIGXFSZ, &action, &file_size_before_);
  action.sa_handler = SIG_DFL;  // An ignored SIGCHLD would take the exit status of the ranks away.
  ::sigaction(SIGCHLD, &action, &child_before_);
}

SignalSource::~SignalSource() {
  while (next()) {  // What is left was meant for the job; delivered now, it would kill us without a word.
  }
  ::sigaction(SIGCHLD, &child_before_, nullptr);
  ::sigaction(SIGXFSZ, &file_size_before_, nullptr);
  ::sigaction(SIGPIPE, &pipe_before_, nullptr);
  ::sigprocmask(SIG_SETMASK, &mask_before_, nullptr);
}

std::optional<int> SignalSource::next() {
  signalfd_siginfo info;
  const ssize_t count = ::read(fd_.get(), &info, sizeof info);
  if (count != sizeof info) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

}  // namespace gyre::launch
