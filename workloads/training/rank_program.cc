#include "workloads/training/rank_program.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <memory>

#include "gyre/base/error.h"
#include "gyre/base/launch_contract.h"
#include "gyre/base/log.h"
#include "gyre/base/parse.h"
#include "gyre/engine/runtime.h"
#include "gyre/group/group.h"
#include "gyre/group/job.h"
#include "gyre/train/engine_exchange.h"
#include "gyre/train/libtorch_version.h"
#include "gyre/train/server_exchange.h"

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

/// Does the work; where it fails, the other ranks learn the reason, not only that this one is gone.
int do_work(group::Group& group, const std::function<int()>& work) {
  try {
    return work();
  } catch (const std::exception& error) {
    group.abort(Error(ErrorCode::kAborted, fmt::format("{} failed: {}", group.topology().describe(group.rank()), error.what())));
    throw;
  }
}

/// A job with parameter servers has no engine: workers and servers exchange messages.
int run_with_servers(const group::Job& job, const Work& work) {
  const engine::RuntimeOptions options = engine::runtime_options_from_environment();
  const params::Layout layout{.workers = job.size - job.servers, .servers = job.servers};
  const Logger logger = make_logger(fmt::format("rank {}", layout.worker_of(job.rank)), options.log_level);
  const auto group = group::join_group(job, options.group, logger);
  return do_work(*group, [&] {
    train::ServerExchange exchange(*group, layout);
    return work(exchange);
  });
}

int run(const Work& work) {
  train::check_libtorch_version();
  configure_libtorch_from_environment();
  if (environment_variable(launch_contract::kServers).value_or("0") != "0") {
    const auto timeout = engine::runtime_options_from_environment().group.join_timeout;
    return run_with_servers(group::job_from_environment(Deadline::after(timeout)), work);
  }
  const auto runtime = engine::Runtime::start_from_environment();
  return do_work(runtime->group(), [&] { return work(*make_exchange(*runtime)); });
}

}  // namespace

int run_as_rank(std::string_view program, const Work& work) {
  try {
    return run(work);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", program, error.what());
    return kFailed;
  }
}

}  // namespace gyre::training
