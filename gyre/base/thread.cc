#include "gyre/base/thread.h"

#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <system_error>
#include <unordered_set>
#include <utility>

#include "gyre/base/error.h"
#include "gyre/base/pthread_lock.h"

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

// A fact about the process, not state of a runtime. A thread that forks holds the mutex, so that the fork finds it free
// and the list whole; the fork itself has none of these threads.
pthread_mutex_t g_threads_mutex = PTHREAD_MUTEX_INITIALIZER;

std::unordered_set<pid_t>& own_threads() {
  // Never destroyed: a detached thread may end after main.
  static auto& threads = *new std::unordered_set<pid_t>;
  [[maybe_unused]] static const int registered =
      ::pthread_atfork([] { ::pthread_mutex_lock(&g_threads_mutex); }, [] { ::pthread_mutex_unlock(&g_threads_mutex); },
                       [] {
                         threads.clear();
                         ::pthread_mutex_unlock(&g_threads_mutex);
                       });
  return threads;
}

}  // namespace

std::thread start_thread(std::string_view purpose, std::function<void()> body) {
  try {
    const WithoutSignals during_the_start;
    return std::thread([body = std::move(body)] {
      const OwnThread own;
      body();
    });
  } catch (const std::system_error& error) {
    throw Error(
        ErrorCode::kResourceExhausted,
        fmt::format("the system gives no thread for {}: {} (see `ulimit -u`, `ulimit -v` and the container's limit "
                    "of processes)",
                    purpose, error.code().message()));
  }
}

ThreadIdentity ThreadIdentity::current() { return {std::this_thread::get_id(), ::gettid()}; }

std::uint64_t thread_serial() {
  static std::atomic<std::uint64_t> last{0};
  thread_local const std::uint64_t own = ++last;
  return own;
}

OwnThread::OwnThread() {
  auto& threads = own_threads();
  const PthreadLock lock(g_threads_mutex);
  threads.insert(::gettid());
}

OwnThread::~OwnThread() {
  auto& threads = own_threads();
  const PthreadLock lock(g_threads_mutex);
  threads.erase(::gettid());
}

bool OwnThread::is(pid_t thread) {
  const auto& threads = own_threads();
  const PthreadLock lock(g_threads_mutex);
  return threads.contains(thread);
}

}  // namespace gyre
