#include "workloads/training/rank_program.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <spdlog/logger.h>

#include <cstdio>
#include <exception>
#include <memory>
#include <string_view>

#include "gyre/base/error.h"
#include "gyre/base/launch_contract.h"
#include "gyre/base/log.h"
#include "gyre/base/parse.h"
#include "gyre/base/timeline.h"
#include "gyre/engine/metrics.h"
#include "gyre/engine/runtime.h"
#include "gyre/group/group.h"
#include "gyre/group/job.h"
#include "gyre/params/consistency.h"
#include "gyre/train/engine_exchange.h"
#include "gyre/train/libtorch_version.h"
#include "gyre/train/local_steps.h"
#include "gyre/train/server_exchange.h"
#include "gyre/train/shared_parameters.h"

namespace gyre::training {
namespace {

constexpr int kFailed = 1;
constexpr int kTargetMissed = 3;
constexpr int kMostThreads = 4096;

void configure_libtorch_from_environment() {
  if (const auto threads = environment_variable("OMP_NUM_THREADS")) {
    at::set_num_threads(static_cast<int>(parse_integer(*threads, "OMP_NUM_THREADS", 1, kMostThreads)));
  }
  at::globalContext().setDeterministicAlgorithms(true, false);
  // Else every new tensor is filled with NaN first, against kernels that read what nothing has written.
  at::globalContext().setDeterministicFillUninitializedMemory(false);
}

/// Does the work; where it fails, the other ranks learn the reason, not only that this one is gone. The code stays: it
/// says whether a job that survives the loss of a worker may go on.
int do_work(group::Group& group, const std::function<int()>& work) {
  try {
    return work();
  } catch (const std::exception& error) {
    group.abort(Error(as_error(error).code(),
                      fmt::format("{} failed: {}", group.topology().describe(group.rank()), error.what())));
    throw;
  }
}

/// `Work` with its exit code.
using RankWork = std::function<int(train::GradientExchange& exchange)>;

/// Over an exchange that averages.
int work_in_local_steps(train::GradientExchange& exchange, const params::ConsistencyChoice& choice,
                        const RankWork& work) {
  if (choice.local_steps == 0) return work(exchange);
  train::LocalSteps local(exchange, choice.local_steps, choice.outer);
  return work(local);
}

/// A job with parameter servers has no engine: workers and servers exchange messages.
int run_with_servers(const group::Job& job, const params::ConsistencyChoice& choice, const RankWork& work) {
  const engine::RuntimeOptions options = engine::runtime_options_from_environment();
  const params::Layout layout{.workers = job.size - job.servers, .servers = job.servers};
  const Logger logger = make_logger(fmt::format("rank {}", layout.worker_of(job.rank)), options.log_level);
  const auto group = group::join_group(job, options.group, logger);
  params::ConsistencyOptions servers = choice.servers;
  servers.needs_first_worker = servers.survives_losses;  // It evaluates, prints and saves for all: see Trainer.
  return do_work(*group, [&] {
    const auto timeline =
        layout.worker_of(group->rank()) == 0 ? start_timeline(options.engine.timeline, logger) : nullptr;
    const bool servers_update = choice.servers.kind != params::Consistency::kSync || choice.servers.backup_workers > 0;
    if (servers_update) {
      train::SharedParameters exchange(*group, layout, servers, timeline);
      const int code = work(exchange);
      if (exchange.dropped_steps() > 0) {
        logger->info("{} steps came too late and were dropped", exchange.dropped_steps());
      }
      return code;
    }
    train::ServerExchange exchange(*group, layout, servers, timeline);
    return work_in_local_steps(exchange, choice, work);
  });
}

/// For `gyre run --metrics`: what the exchange of the whole run has cost this rank.
void log_exchange(engine::Runtime& runtime) {
  const auto logger = group::metrics_logger_from_environment();
  if (!logger) return;
  const engine::EngineStatistics statistics = runtime.engine().statistics();
  std::int64_t steps = 0;
  for (const auto& plan : statistics.plans) steps += static_cast<std::int64_t>(plan.steps);
  logger->log_own(engine::metrics_of(statistics), steps);
}

int run_without_servers(const params::ConsistencyChoice& choice, const RankWork& work) {
  if (choice.needs_servers()) {
    throw Error(ErrorCode::kInvalidArgument,
                "'--consistency' of this kind needs parameter servers: start the job with `gyre run --servers N`");
  }
  const auto runtime = engine::Runtime::start_from_environment();
  return do_work(runtime->group(), [&] {
    if (runtime->size() == 1) {  // Gradients stay where autograd puts them.
      train::LocalExchange exchange(runtime.get());
      return work_in_local_steps(exchange, choice, work);
    }
    train::EngineExchange exchange(*runtime);
    const int code = work_in_local_steps(exchange, choice, work);
    log_exchange(*runtime);
    return code;
  });
}

int run(std::string_view consistency, const RankWork& work) {
  train::check_libtorch_version();
  configure_libtorch_from_environment();
  const params::ConsistencyChoice choice = params::parse_consistency(consistency);
  if (environment_variable(launch_contract::kServers).value_or("0") == "0") return run_without_servers(choice, work);
  const auto timeout = engine::runtime_options_from_environment().group.join_timeout;
  return run_with_servers(group::job_from_environment(Deadline::after(timeout)), choice, work);
}

int exit_code_of(const Outcome& outcome, const ProgramOptions& options, int rank) {
  if (outcome.missed.empty() || rank != 0) return 0;
  if (options.verbose == 0) fmt::print(stderr, "{}: {}\n", options.program, outcome.missed);
  return kTargetMissed;
}

}  // namespace

int run_as_rank(const ProgramOptions& options, const Work& work) {
  try {
    return run(options.consistency, [&](train::GradientExchange& exchange) {
      return exit_code_of(work(exchange), options, exchange.rank());
    });
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", options.program, error.what());
    return kFailed;
  }
}

}  // namespace gyre::training
