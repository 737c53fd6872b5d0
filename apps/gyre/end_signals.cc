#include "apps/gyre/end_signals.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

namespace gyre::app {

EndSignals::EndSignals() {
  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::sigaddset(&signals, signal);
  ::pthread_sigmask(SIG_BLOCK, &signals, &before_);
  fd_ = UniqueFd(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
}

EndSignals::~EndSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

bool EndSignals::wait(int longest_ms) {
  pollfd source{fd_.get(), POLLIN, 0};
  if (::poll(&source, 1, longest_ms) <= 0) return false;
  signalfd_siginfo info{};
  if (::read(fd_.get(), &info, sizeof info) != sizeof info) return false;
  received_ = static_cast<int>(info.ssi_signo);
  return true;
}

}  // namespace gyre::app
