#pragma once

#include <nanobind/nanobind.h>

namespace gyre::python {

/// What torch.distributed's backend needs beside the engine: joining a job that somebody else arranged, and messages
/// between two ranks.
void bind_distributed(nanobind::module_& module);

}  // namespace gyre::python
