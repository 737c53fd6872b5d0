#include "workloads/training/rank_program.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <memory>

#include "gyre/base/error.h"
#include "gyre/base/parse.h"
#include "gyre/engine/runtime.h"
#include "gyre/train/engine_exchange.h"
#include "gyre/train/libtorch_version.h"

namespace gyre::training {
namespace {

constexpr int kFailed = 1;
constexpr int kMostThreads = 4096;

void configure_libtorch_from_environment() {
  if (const auto threads = environment_variable("OMP_NUM_THREADS")) {
    at::set_num_threads(static_cast<int>(parse_integer(*threads, "OMP_NUM_THREADS", 1, kMostThreads)));
  }
  at::globalContext().setDeterministicAlgorithms(true, false);
}

/// A job of one needs no exchange: gradients stay where autograd puts them.
std::unique_ptr<train::GradientExchange> make_exchange(engine::Runtime& runtime) {
  if (runtime.size() == 1) return std::make_unique<train::LocalExchange>(&runtime);
  return std::make_unique<train::EngineExchange>(runtime);
}

int run(const std::function<int(train::GradientExchange& exchange)>& work) {
  train::check_libtorch_version();
  configure_libtorch_from_environment();
  const auto runtime = engine::Runtime::start_from_environment();
  try {
    return work(*make_exchange(*runtime));
  } catch (const std::exception& error) {
    // The other ranks learn the reason, not only that this one is gone.
    runtime->group().abort(
        Error(ErrorCode::kAborted, fmt::format("rank {} failed: {}", runtime->rank(), error.what())));
    throw;
  }
}

}  // namespace

int run_as_rank(std::string_view program, const std::function<int(train::GradientExchange& exchange)>& work) {
  try {
    return run(work);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", program, error.what());
    return kFailed;
  }
}

}  // namespace gyre::training
