#include "gyre/engine/options.h"

#include <initializer_list>
#include <optional>
#include <string_view>
#include <utility>

#include "gyre/base/parse.h"
#include "gyre/engine/internal/stall/process_waits.h"
#include "gyre/metrics/job_file.h"

namespace gyre::engine {

namespace {

constexpr std::int64_t kMostSeconds = 30 * 24 * 3600;

/// The first of the variables that is set, with its name.
std::optional<std::pair<const char*, std::string>> first_set(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (auto value = environment_variable(name)) return std::pair(name, *std::move(value));
  }
  return std::nullopt;
}

std::chrono::milliseconds seconds(const std::pair<const char*, std::string>& variable) {
  return std::chrono::seconds(parse_integer(variable.second, variable.first, 0, kMostSeconds));
}

}  // namespace

EngineOptions engine_options_from_environment() {
  EngineOptions options;
  if (const auto set = first_set({"GYRE_FUSION_BYTES", "HOROVOD_FUSION_THRESHOLD"})) {
    options.fusion_bytes = parse_bytes(set->second, set->first);
  }
  // To Horovod DYNAMIC means: none before somebody starts one.
  const auto timeline = first_set({"GYRE_TIMELINE", "HOROVOD_TIMELINE"});
  if (timeline && !(timeline->second == "DYNAMIC" && timeline->first == std::string_view("HOROVOD_TIMELINE"))) {
    options.timeline = timeline->second;
  }
  if (const auto order = environment_variable(metrics::kJobTimelineVariable)) {
    if (auto parsed = metrics::parse_job_file_order(*order)) {
      options.job_timeline = JobTimeline{std::move(parsed->path), parsed->most_bytes};
    }
  }
  if (const auto set = first_set({"GYRE_TIMELINE_MARK_CYCLES", "HOROVOD_TIMELINE_MARK_CYCLES"})) {
    options.timeline_mark_cycles = parse_bool(set->second, set->first);
  }
  if (const auto set = first_set({"GYRE_STALL_WARNING_SECONDS", "HOROVOD_STALL_CHECK_TIME_SECONDS"})) {
    options.stall_warning = seconds(*set);
  }
  if (const auto set = first_set({"HOROVOD_STALL_CHECK_DISABLE"});
      set && !environment_variable("GYRE_STALL_WARNING_SECONDS")) {
    if (parse_bool(set->second, set->first)) options.stall_warning = std::chrono::milliseconds{0};
  }
  if (const auto set = first_set({"GYRE_STALL_FAILURE_SECONDS", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"})) {
    options.stall_failure = seconds(*set);
  }
  if (const auto set = first_set({"GYRE_DEADLOCK_SECONDS"})) options.deadlock_check = seconds(*set);
  if (const auto set = first_set({"GYRE_COLLECTIVE_TIMEOUT_SECONDS"})) options.collective_timeout = seconds(*set);
  return options;
}

std::shared_ptr<internal::ProcessWaits> make_process_waits(
    std::function<std::vector<ProgramThread>()> program_threads) {
  return std::make_shared<internal::ProcessWaits>(std::move(program_threads));
}

}  // namespace gyre::engine
