#include <nanobind/nanobind.h>

#include "python/gyre/core/arithmetic_binding.h"
#include "python/gyre/core/checkpoint_binding.h"
#include "python/gyre/core/data_binding.h"
#include "python/gyre/core/distributed_binding.h"
#include "python/gyre/core/engine_binding.h"
#include "python/gyre/core/error_binding.h"
#include "python/gyre/core/exchange_cost_binding.h"
#include "python/gyre/core/jobs_binding.h"
#include "python/gyre/core/memory_binding.h"
#include "python/gyre/core/metrics_binding.h"
#include "python/gyre/core/models_binding.h"
#include "python/gyre/core/params_binding.h"
#include "python/gyre/core/secret_binding.h"
#include "python/gyre/core/tensorflow_binding.h"

NB_MODULE(_core, module) {
  module.doc() = "The engine of Gyre (C++). gyre.torch is the face to use.";
  module.attr("__version__") = GYRE_VERSION;
  // This module does not link it; the programs beside it do.
  module.attr("libtorch_version") = GYRE_LIBTORCH_VERSION;
  // A gradient that still lives in the arena when the interpreter ends is no leak.
  nanobind::set_leak_warnings(false);
  gyre::python::bind_errors(module);
  gyre::python::bind_memory(module);
  gyre::python::bind_arithmetic(module);
  gyre::python::bind_data(module);
  gyre::python::bind_checkpoints(module);
  gyre::python::bind_engine(module);
  gyre::python::bind_secret(module);
  gyre::python::bind_jobs(module);
  gyre::python::bind_distributed(module);
  gyre::python::bind_metrics(module);
  gyre::python::bind_params(module);
  gyre::python::bind_exchange_costs(module);
  gyre::python::bind_models(module);
  gyre::python::bind_tensorflow(module);
}
