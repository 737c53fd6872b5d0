#pragma once

#include <nanobind/nanobind.h>

namespace gyre::python {

/// What the client of a job server in Python shares with the one in C++.
void bind_jobs(nanobind::module_& module);

}  // namespace gyre::python
