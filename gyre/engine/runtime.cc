#include "gyre/engine/runtime.h"

#include <fmt/format.h>

#include <utility>

#include "gyre/base/parse.h"
#include "gyre/group/in_process.h"
#include "gyre/group/job.h"

namespace gyre::engine {

namespace {
constexpr std::int64_t kMostStartSeconds = 24 * 3600;
}

RuntimeOptions runtime_options_from_environment() {
  RuntimeOptions options;
  options.engine = engine_options_from_environment();
  options.log_level = environment_variable("GYRE_LOG_LEVEL").value_or(options.log_level);
  if (const auto value = environment_variable("GYRE_START_TIMEOUT_SECONDS")) {
    options.group.join_timeout =
        std::chrono::seconds(parse_integer(*value, "GYRE_START_TIMEOUT_SECONDS", 1, kMostStartSeconds));
  }
  return options;
}

std::unique_ptr<Runtime> Runtime::start_from_environment() {
  const RuntimeOptions options = runtime_options_from_environment();
  const group::Job job = group::job_from_environment(Deadline::after(options.group.join_timeout));
  const Logger logger = make_logger(fmt::format("rank {}", job.rank), options.log_level);
  return std::make_unique<Runtime>(group::join_group(job, options.group, logger), options);
}

Runtime::Runtime(std::shared_ptr<group::Group> group, const RuntimeOptions& options)
    : logger_(make_logger(fmt::format("rank {}", group->rank()), options.log_level)),
      group_(std::move(group)),
      engine_(std::make_unique<Engine>(*group_, options.engine, logger_)) {}

Runtime::~Runtime() { shutdown(); }

void Runtime::shutdown() {
  engine_->shutdown();
  group_->leave();
}

void run_ranks(int size, const std::function<void(Runtime&)>& body, const RuntimeOptions& options,
               std::vector<std::string> host_ids) {
  const auto run_rank = [&](group::Group& group) {
    Runtime runtime(std::shared_ptr<group::Group>(&group, [](group::Group*) {}), options);
    try {
      body(runtime);
    } catch (const std::exception& error) {
      // Before the runtime leaves in good order, which would hide the cause from the other ranks.
      group.abort(Error(ErrorCode::kAborted, fmt::format("rank {} failed: {}", group.rank(), error.what())));
      throw;
    }
  };
  group::run_in_process(size, run_rank, std::move(host_ids));
}

}  // namespace gyre::engine
