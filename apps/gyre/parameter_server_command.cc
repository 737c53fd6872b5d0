#include "apps/gyre/parameter_server_command.h"

#include <fmt/format.h>
#include <spdlog/logger.h>

#include "gyre/base/error.h"
#include "gyre/base/log.h"
#include "gyre/engine/runtime.h"
#include "gyre/group/group.h"
#include "gyre/group/job.h"
#include "gyre/params/server.h"

namespace gyre::app {

namespace {

std::unique_ptr<group::Group> join(const group::Job& job, const group::GroupOptions& options, const Logger& logger) {
  try {
    return group::join_group(job, options, logger);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kPeerLost) throw;
    throw Error(ErrorCode::kPeerLost,
                fmt::format("this program does not use its parameter servers (gyre.params and Gyre's own programs do): "
                            "start it without --servers ({})",
                            error.what()));
  }
}

/// A worker's failure may be an invalid argument, but it is none of this command.
params::ServerStatistics serve_workers(group::Group& group, const params::Layout& layout,
                                       const params::ServerOptions& options) {
  try {
    return params::serve(group, layout, options);
  } catch (const Error& error) {
    throw Error(ErrorCode::kAborted, error.what());
  }
}

}  // namespace

ParameterServerCommand::ParameterServerCommand(CLI::App& app) {
  app.add_subcommand(kName, "Serve parameters to the workers of a job; `gyre run --servers` starts it")->group("");
}

int ParameterServerCommand::run() {
  // The workers' own settings, so that no server gives up before them.
  const engine::RuntimeOptions options = engine::runtime_options_from_environment();
  const group::Job job = group::job_from_environment(Deadline::after(options.group.join_timeout));
  if (job.rank >= job.servers) {
    throw Error(ErrorCode::kInvalidArgument,
                "this process is not a parameter server of a job: `gyre run --servers N -- COMMAND` starts them");
  }
  const params::Layout layout{.workers = job.size - job.servers, .servers = job.servers};
  const Logger logger = make_logger(fmt::format("server {}", job.rank), options.log_level);
  const auto group = join(job, options.group, logger);
  const params::ServerStatistics statistics = serve_workers(
      *group, layout,
      {.stall_warning = options.engine.stall_warning, .stall_failure = options.engine.stall_failure, .logger = logger});
  const std::string staleness = params::describe_staleness(statistics.staleness);
  if (!staleness.empty()) fmt::print("server {}: {}", job.rank, staleness);
  if (statistics.late > 0) {
    fmt::print("server {}: {} gradients came too late and were dropped\n", job.rank, statistics.late);
  }
  return 0;
}

}  // namespace gyre::app
