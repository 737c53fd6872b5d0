#include "python/gyre/core/interruptible.h"

#include <utility>

namespace gyre::python {
namespace {

// Guarded by the GIL.
std::function<void()>& hook_of_waits() {
  static std::function<void()> hook;
  return hook;
}

}  // namespace

void call_while_waiting(std::function<void()> hook) { hook_of_waits() = std::move(hook); }

void wait_with_signals(const std::function<bool(std::chrono::milliseconds)>& wait_for) {
  while (true) {
    {
      const nanobind::gil_scoped_release released;
      if (wait_for(kSignalPatience)) return;
    }
    if (PyErr_CheckSignals() != 0) throw nanobind::python_error();
    if (const std::function<void()>& hook = hook_of_waits()) hook();
  }
}

}  // namespace gyre::python
