#include "gyre/base/thread.h"

#include <fmt/format.h>
#include <pthread.h>

#include <csignal>
#include <system_error>
#include <utility>

#include "gyre/base/error.h"

namespace gyre {
namespace {

/// All but those that the kernel sends to a thread for what it has just done: a fault that is blocked would end the
/// process without the program's handler (Python's faulthandler, a crash reporter).
sigset_t asynchronous_signals() {
  sigset_t signals;
  ::sigfillset(&signals);
  for (const int synchronous : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT}) {
    ::sigdelset(&signals, synchronous);
  }
  return signals;
}

/// A thread begins with the mask of the one that starts it, so that no signal can slip in before it has set its own.
class WithoutSignals {
 public:
  WithoutSignals() {
    const sigset_t signals = asynchronous_signals();
    ::pthread_sigmask(SIG_BLOCK, &signals, &before_);
  }
  ~WithoutSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  WithoutSignals(const WithoutSignals&) = delete;
  WithoutSignals& operator=(const WithoutSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

std::thread start_thread(std::string_view purpose, std::function<void()> body) {
  try {
    const WithoutSignals during_the_start;
    return std::thread(std::move(body));
  } catch (const std::system_error& error) {
    throw Error(
        ErrorCode::kResourceExhausted,
        fmt::format("the system gives no thread for {}: {} (see `ulimit -u`, `ulimit -v` and the container's limit "
                    "of processes)",
                    purpose, error.code().message()));
  }
}

}  // namespace gyre
