#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "gyre/engine/runtime.h"

namespace gyre::python {

void bind_tensorflow(nanobind::module_& module);

/// Makes the plan known to TensorFlow's ops, under a number of its own, until take_back_plan(number). The calling
/// thread is the one that will wait for its steps.
std::int64_t lend_plan(std::shared_ptr<engine::Runtime> runtime, std::shared_ptr<engine::Plan> plan,
                       std::vector<engine::Shape> shapes);

}  // namespace gyre::python
