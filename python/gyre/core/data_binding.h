#pragma once

#include <nanobind/nanobind.h>

namespace gyre::python {

void bind_data(nanobind::module_& module);

}  // namespace gyre::python
