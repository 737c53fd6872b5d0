#include "python/gyre/core/process_bound.h"

#include <pthread.h>

#include <atomic>

namespace gyre::python {

namespace {

// A fact about the process, not state of a runtime. Zero: not asked for yet.
std::atomic<pid_t> g_own_process{0};

void look_again() { g_own_process.store(::getpid(), std::memory_order_relaxed); }

}  // namespace

pid_t own_process() {
  if (const pid_t known = g_own_process.load(std::memory_order_relaxed); known != 0) return known;
  [[maybe_unused]] static const int registered = ::pthread_atfork(nullptr, nullptr, &look_again);
  look_again();
  return g_own_process.load(std::memory_order_relaxed);
}

}  // namespace gyre::python
