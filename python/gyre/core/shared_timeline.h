#pragma once

#include <memory>

#include "gyre/base/timeline.h"

namespace gyre::python {

/// A timeline that several parts of a process write to, for Python. Never null.
struct SharedTimeline {
  std::shared_ptr<Timeline> timeline;
};

}  // namespace gyre::python
