#pragma once

#include <nanobind/nanobind.h>

namespace gyre::python {

/// read_checkpoint() and encode_checkpoint(), over gyre/train/checkpoint.h.
void bind_checkpoints(nanobind::module_& module);

}  // namespace gyre::python
