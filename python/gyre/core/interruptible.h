#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <type_traits>
#include <utility>

#include "gyre/base/thread.h"

namespace gyre::python {

/// How long a waiting thread sleeps before it looks whether somebody pressed Ctrl-C.
constexpr std::chrono::milliseconds kSignalPatience{50};

/// Calls `wait_for(kSignalPatience)` without the GIL until it returns true; between the calls Python's signal handlers
/// run, and what they raise (KeyboardInterrupt) ends the wait. To be called with the GIL held.
void wait_with_signals(const std::function<bool(std::chrono::milliseconds)>& wait_for);

/// From now on every wait_with_signals() that lasts calls this too between its looks, with the GIL held.
void call_while_waiting(std::function<void()> hook);

/// The result of `work`, run on a thread of its own so that Ctrl-C can end the wait for it. After an interruption
/// `work` runs on until it ends by itself, so it must own all that it uses; its result is dropped.
/// To be called with the GIL held; `work` runs without it.
template <typename Work>
std::invoke_result_t<Work> run_interruptibly(Work work) {
  using Outcome = std::invoke_result_t<Work>;
  auto task = std::make_shared<std::packaged_task<Outcome()>>(std::move(work));
  std::future<Outcome> outcome = task->get_future();
  start_thread("what Ctrl-C can interrupt", [task = std::move(task)] { (*task)(); }).detach();
  wait_with_signals(
      [&](std::chrono::milliseconds patience) { return outcome.wait_for(patience) == std::future_status::ready; });
  return outcome.get();
}

}  // namespace gyre::python
