#pragma once

#include <nanobind/nanobind.h>

namespace gyre::python {

/// Keys, which Python handles without seeing their bytes, and how the ranks of a host get one.
void bind_secret(nanobind::module_& module);

}  // namespace gyre::python
