#pragma once

#include <nanobind/nanobind.h>

namespace gyre::python {

/// exchange_cost and choose_architecture.
void bind_exchange_costs(nanobind::module_& module);

}  // namespace gyre::python
