#include "python/gyre/core/interruptible.h"

namespace gyre::python {

void wait_with_signals(const std::function<bool(std::chrono::milliseconds)>& wait_for) {
  while (true) {
    {
      const nanobind::gil_scoped_release released;
      if (wait_for(kSignalPatience)) return;
    }
    if (PyErr_CheckSignals() != 0) throw nanobind::python_error();
  }
}

}  // namespace gyre::python
