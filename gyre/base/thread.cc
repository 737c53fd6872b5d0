#include "gyre/base/thread.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <deque>
#include <latch>
#include <memory>
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

using Clock = std::chrono::steady_clock;

/// So long a thread is known after its end; its number comes back only after all others.
constexpr auto kLongestEnd = std::chrono::seconds(2);

struct OwnThreads {
  std::unordered_set<pid_t> running;
  std::deque<std::pair<Clock::time_point, pid_t>> ended;  ///< They may still be in /proc.
};

// A fact about the process, not state of a runtime. A thread that forks holds the mutex, so that the fork finds it free
// and the lists whole; the fork itself has none of these threads.
pthread_mutex_t g_threads_mutex = PTHREAD_MUTEX_INITIALIZER;

OwnThreads& own_threads() {
  // Never destroyed: a detached thread may end after main.
  static auto& threads = *new OwnThreads;
  [[maybe_unused]] static const int registered =
      ::pthread_atfork([] { ::pthread_mutex_lock(&g_threads_mutex); }, [] { ::pthread_mutex_unlock(&g_threads_mutex); },
                       [] {
                         threads = {};
                         ::pthread_mutex_unlock(&g_threads_mutex);
                       });
  return threads;
}

bool exists(pid_t thread) { return ::syscall(SYS_tgkill, ::getpid(), thread, 0) == 0; }

void note_end_of_this_thread() {
  auto& threads = own_threads();
  const auto now = Clock::now();
  const PthreadLock lock(g_threads_mutex);
  while (!threads.ended.empty() && threads.ended.front().first + kLongestEnd < now) threads.ended.pop_front();
  if (threads.running.erase(::gettid()) > 0) threads.ended.emplace_back(now, ::gettid());
}

}  // namespace

std::thread start_thread(std::string_view purpose, std::function<void()> body) {
  try {
    auto& threads = own_threads();
    const auto known = std::make_shared<std::latch>(1);
    const WithoutSignals during_the_start;
    // Until the new thread is in the list: whoever has seen it in /proc calls is_own_thread() afterwards.
    const PthreadLock lock(g_threads_mutex);
    std::thread thread([&threads, known, body = std::move(body)] {
      threads.running.insert(::gettid());
      known->count_down();
      body();
      note_end_of_this_thread();
    });
    known->wait();
    return thread;
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

bool is_own_thread(pid_t thread) {
  const auto& threads = own_threads();
  const auto now = Clock::now();
  const PthreadLock lock(g_threads_mutex);
  return threads.running.contains(thread) || std::ranges::any_of(threads.ended, [&](const auto& one) {
           return one.second == thread && one.first + kLongestEnd >= now && exists(thread);
         });
}

}  // namespace gyre
