#pragma once

#include <nanobind/nanobind.h>

namespace gyre::python {

/// The networks of gyre/models, for Python to build of torch.nn's modules.
void bind_models(nanobind::module_& module);

}  // namespace gyre::python
