#pragma once

#include <nanobind/nanobind.h>

#include <chrono>

#include "gyre/base/clock.h"
#include "python/gyre/core/interruptible.h"

namespace gyre::python {

/// What all outcomes of operations, Completions or like them, have in Python; the caller adds how to get the value.
template <typename Bound>
nanobind::class_<Bound> bind_completion(nanobind::module_& module, const char* name, const char* text) {
  const auto wait = [](const Bound& self) {
    const typename Bound::Waiting waiting(self);
    wait_with_signals([&](std::chrono::milliseconds patience) { return self.wait_for(patience); });
  };
  const auto wait_for = [](const Bound& self, double seconds) {
    const auto limit = std::chrono::ceil<std::chrono::milliseconds>(std::chrono::duration<double>(seconds));
    const Deadline deadline = Deadline::after(limit);
    bool done = false;
    wait_with_signals([&](std::chrono::milliseconds patience) {
      const std::chrono::milliseconds slice(deadline.poll_timeout_ms(static_cast<int>(patience.count())));
      done = self.wait_for(slice);
      return done || deadline.passed();
    });
    return done;
  };
  return nanobind::class_<Bound>(module, name, text)
      .def("done", &Bound::done)
      .def("wait", wait,
           "Sleeps until done, without the GIL; raises what made the operation fail. Ctrl-C ends the wait.")
      .def("wait_for", wait_for, nanobind::arg("seconds"),
           "wait() for at most so long; False when it is not done by then.");
}

}  // namespace gyre::python
