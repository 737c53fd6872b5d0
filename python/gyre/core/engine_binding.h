#pragma once

#include <nanobind/nanobind.h>

namespace gyre::python {

/// Runtime, Request, Handle and Plan of gyre::engine.
void bind_engine(nanobind::module_& module);

}  // namespace gyre::python
