#include "gyre/engine/runtime.h"

#include <fmt/format.h>
#include <spdlog/logger.h>

#include <cctype>
#include <optional>
#include <string>
#include <utility>

#include "gyre/base/allocator.h"
#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/base/parse.h"
#include "gyre/engine/internal/channels.h"
#include "gyre/group/in_process.h"
#include "gyre/group/job.h"
#include "gyre/group/subgroup.h"

namespace gyre::engine {

namespace {

constexpr std::int64_t kMostStartSeconds = 24 * 3600;

int rank_in_job(const group::Group& group) { return group.topology().self().rank_in_job.value_or(group.rank()); }

/// What its process sets share with it.
RuntimeOptions with_waits(RuntimeOptions options) {
  if (!options.engine.waits) options.engine.waits = make_process_waits();
  return options;
}

std::optional<std::string> horovod_log_level() {
  auto level = environment_variable("HOROVOD_LOG_LEVEL");
  if (!level) return std::nullopt;
  for (char& c : *level) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return level == "fatal" ? "error" : level;
}

}  // namespace

RuntimeOptions runtime_options_from_environment() {
  RuntimeOptions options;
  options.engine = engine_options_from_environment();
  options.log_level = environment_variable("GYRE_LOG_LEVEL").value_or(horovod_log_level().value_or(options.log_level));
  check_log_level(options.log_level, environment_variable("GYRE_LOG_LEVEL") ? "GYRE_LOG_LEVEL" : "HOROVOD_LOG_LEVEL");
  for (const char* name : {"GYRE_START_TIMEOUT_SECONDS", "HOROVOD_START_TIMEOUT"}) {
    const auto value = environment_variable(name);
    if (!value) continue;
    options.group.join_timeout = std::chrono::seconds(parse_integer(*value, name, 1, kMostStartSeconds));
    break;
  }
  options.explain_file = environment_variable("GYRE_EXPLAIN_FILE").value_or("");
  return options;
}

std::unique_ptr<Runtime> Runtime::start_from_environment(std::function<std::string()> location,
                                                         std::shared_ptr<internal::ProcessWaits> waits) {
  RuntimeOptions options = runtime_options_from_environment();
  options.engine.location = std::move(location);
  options.engine.waits = std::move(waits);
  const group::Job job = group::job_from_environment(Deadline::after(options.group.join_timeout));
  if (job.servers > 0) {
    throw Error(
        ErrorCode::kUnsupported,
        "this job has parameter servers (`gyre run --servers`), and this program exchanges gradients between its "
        "ranks: start it without --servers. gyre.params in Python, gyre-cifar10, gyre-resnet50 and gyre-cosmoflow use "
        "them");
  }
  const Logger logger = make_logger(fmt::format("rank {}", job.rank), options.log_level);
  return std::make_unique<Runtime>(group::join_group(job, options.group, logger), options);
}

Runtime::Runtime(std::shared_ptr<group::Group> group, const RuntimeOptions& options,
                 std::optional<TimelineRows> timeline)
    : options_(with_waits(options)),
      logger_(make_logger(fmt::format("rank {}", rank_in_job(*group)), options.log_level)),
      explain_file_(options.explain_file),
      rates_(options.explain_file.empty() ? MachineRates{} : measure_machine(*group)),
      group_(std::move(group)),
      engine_(std::make_unique<Engine>(*group_, options_.engine, logger_, std::move(timeline))) {
  keep_freed_memory();
}

Runtime::~Runtime() { shutdown(); }

std::unique_ptr<Runtime> Runtime::subset(std::vector<int> ranks, std::uint64_t id, const std::string& name) const {
  RuntimeOptions options = options_;
  options.explain_file.clear();
  return std::make_unique<Runtime>(group::make_subgroup(group_, std::move(ranks), id), options,
                                   engine_->timeline_of_process_set(name.empty() ? fmt::format("set {}", id) : name));
}

std::unique_ptr<group::PointToPoint> Runtime::open_messages() const {
  const auto describe = [](std::uint8_t number, std::size_t size_bytes) {
    const auto type = collectives::data_type_from_number(number);
    if (!type) return fmt::format("{} bytes of an unknown type, {}", size_bytes, number);
    return fmt::format("{} {} elements", size_bytes / collectives::size_of(*type), collectives::name(*type));
  };
  return std::make_unique<group::PointToPoint>(*group_, internal::kPointToPointChannel, describe);
}

void Runtime::write_exchange_report() {
  if (explain_file_.empty() || rank() != 0) return;
  const std::string report = exchange_report(group_->topology(), rates_, engine_->statistics());
  try {
    write_file_atomically(explain_file_, as_bytes(report));
  } catch (const Error& error) {
    // The job itself has done its work.
    logger_->warn("the report for `gyre explain` could not be written: {}", error.what());
  }
  explain_file_.clear();
}

void Runtime::shutdown() {
  write_exchange_report();
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
