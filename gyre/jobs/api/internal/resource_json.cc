#include "gyre/jobs/api/internal/resource_json.h"

#include <fmt/format.h>

#include <array>
#include <ctime>
#include <utility>

#include "gyre/jobs/spec/write.h"
#include "gyre/net/http/message.h"

namespace gyre::jobs::api::internal {
namespace {

using nlohmann::json;

constexpr std::array<std::pair<ExecutionState, std::string_view>, 5> kExecutionStates{
    {{ExecutionState::kQueued, "queued"},
     {ExecutionState::kRunning, "running"},
     {ExecutionState::kTerminating, "terminating"},
     {ExecutionState::kSucceeded, "succeeded"},
     {ExecutionState::kFailed, "failed"}}};

json time_or_null(const std::optional<TimeUs>& time) { return time ? json(iso_8601_time(*time)) : json(); }

template <typename Number>
json number_or_null(const std::optional<Number>& number) {
  return number ? json(*number) : json();
}

json errors_json(const std::vector<ResourceError>& errors) {
  json list = json::array();
  for (const ResourceError& error : errors) {
    json details = json::array();
    for (const auto& [name, value] : error.details) details.push_back({{"name", name}, {"value", value}});
    list.push_back({{"code", error.code}, {"message", error.message}, {"details", std::move(details)}});
  }
  return list;
}

json resource(const std::string& path, const std::string& name, std::string_view type, json properties) {
  return {{"id", path},
          {"name", name},
          {"type", "Microsoft.BatchAI/" + std::string(type)},
          {"properties", std::move(properties)}};
}

}  // namespace

std::string iso_8601_time(TimeUs time) {
  // Rounded down, before 1970 too.
  std::int64_t seconds = time / 1'000'000;
  std::int64_t rest = time % 1'000'000;
  if (rest < 0) {
    rest += 1'000'000;
    --seconds;
  }
  const std::time_t moment = seconds;
  std::tm fields{};
  ::gmtime_r(&moment, &fields);
  std::array<char, 64> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &fields);
  return fmt::format("{}.{:06}Z", text.data(), rest);
}

std::string_view state_name(ProvisioningState state) {
  switch (state) {
    case ProvisioningState::kCreating: return "creating";
    case ProvisioningState::kSucceeded: return "succeeded";
    case ProvisioningState::kFailed: return "failed";
    case ProvisioningState::kDeleting: return "deleting";
  }
  return "";
}

std::string_view state_name(AllocationState state) { return state == AllocationState::kSteady ? "steady" : "resizing"; }

std::string_view state_name(NodeState state) {
  switch (state) {
    case NodeState::kAllocating: return "allocating";
    case NodeState::kPreparing: return "preparing";
    case NodeState::kIdle: return "idle";
    case NodeState::kRunning: return "running";
    case NodeState::kUnusable: return "unusable";
    case NodeState::kLeaving: return "leaving";
    case NodeState::kLost: return "lost";
  }
  return "";
}

std::optional<ExecutionState> execution_state_named(std::string_view text) {
  for (const auto& [state, name] : kExecutionStates) {
    if (net::http::equal_without_case(name, text)) return state;
  }
  return std::nullopt;
}

std::string path_of(const ClusterName& name) {
  return fmt::format("/workspaces/{}/clusters/{}", name.workspace, name.cluster);
}
std::string path_of(const ExperimentName& name) {
  return fmt::format("/workspaces/{}/experiments/{}", name.workspace, name.experiment);
}
std::string path_of(const JobName& name) {
  return fmt::format("/workspaces/{}/experiments/{}/jobs/{}", name.workspace, name.experiment, name.job);
}

json to_json(const User& user) {
  return {{"name", user.name},
          {"isAdministrator", user.is_administrator},
          {"account", user.account},
          {"isTrusted", user.is_trusted}};
}

json to_json(const Workspace& workspace) {
  json body = resource("/workspaces/" + workspace.name, workspace.name, "workspaces",
                       {{"creationTime", iso_8601_time(workspace.creation_time)},
                        {"provisioningState", "succeeded"},
                        {"quotas",
                         {{"cores", number_or_null(workspace.quotas.cores)},
                          {"lowPriorityCores", number_or_null(workspace.quotas.low_priority_cores)}}}});
  body["location"] = workspace.location;
  return body;
}

json to_json(const Usage& usage) {
  return {{"unit", usage.unit},
          {"currentValue", usage.current_value},
          {"limit", number_or_null(usage.limit)},
          {"name", {{"value", usage.name}, {"localizedValue", usage.name}}}};
}

json to_json(const Cluster& cluster) {
  json properties = spec::to_json(cluster.spec);
  properties["creationTime"] = iso_8601_time(cluster.creation_time);
  properties["provisioningState"] = state_name(cluster.provisioning_state);
  properties["provisioningStateTransitionTime"] = iso_8601_time(cluster.provisioning_state_transition_time);
  properties["allocationState"] = state_name(cluster.allocation_state);
  properties["allocationStateTransitionTime"] = iso_8601_time(cluster.allocation_state_transition_time);
  properties["errors"] = errors_json(cluster.errors);
  properties["currentNodeCount"] = cluster.current_node_count;
  const NodeStateCounts& counts = cluster.node_state_counts;
  properties["nodeStateCounts"] = {{"idleNodeCount", counts.idle},
                                   {"runningNodeCount", counts.running},
                                   {"preparingNodeCount", counts.preparing},
                                   {"unusableNodeCount", counts.unusable},
                                   {"leavingNodeCount", counts.leaving}};
  return resource(path_of(cluster.name), cluster.name.cluster, "workspaces/clusters", std::move(properties));
}

json to_json(const Node& node) {
  return {{"nodeId", node.name},
          {"state", state_name(node.state)},
          {"stateTransitionTime", iso_8601_time(node.state_transition_time)},
          {"ipAddress", node.address.empty() ? json() : json(node.address)},
          {"job", node.job ? json(*node.job) : json()},
          {"problem", node.problem.empty() ? json() : json(node.problem)}};
}

json to_json(const Experiment& experiment) {
  return resource(path_of(experiment.name), experiment.name.experiment, "workspaces/experiments",
                  {{"creationTime", iso_8601_time(experiment.creation_time)},
                   {"provisioningState", state_name(experiment.provisioning_state)},
                   {"provisioningStateTransitionTime", iso_8601_time(experiment.provisioning_state_transition_time)}});
}

json to_json(const Job& job) {
  json properties = spec::to_json(job.spec);
  properties["toolType"] = spec::tool_type(job.spec.toolkit);
  properties["jobOutputDirectoryPathSegment"] = job.job_output_directory_path_segment;
  properties["creationTime"] = iso_8601_time(job.creation_time);
  properties["provisioningState"] = state_name(job.provisioning_state);
  properties["provisioningStateTransitionTime"] = iso_8601_time(job.provisioning_state_transition_time);
  properties["executionState"] = state_name(job.execution_state);
  properties["executionStateTransitionTime"] = iso_8601_time(job.execution_state_transition_time);
  const ExecutionInfo& info = job.execution_info;
  properties["executionInfo"] = {{"startTime", time_or_null(info.start_time)},
                                 {"endTime", time_or_null(info.end_time)},
                                 {"exitCode", number_or_null(info.exit_code)},
                                 {"errors", errors_json(info.errors)}};
  json body = resource(path_of(job.name), job.name.job, "workspaces/experiments/jobs", std::move(properties));
  body["gyre"] = {
      {"uuid", job.uuid}, {"attempts", job.attempts}, {"submitter", job.submitter}, {"account", job.account}};
  if (job.retry_time) body["gyre"]["retryTime"] = iso_8601_time(*job.retry_time);
  return body;
}

json to_json(const Explanation& explanation) {
  return {{"reason", explanation.reason},
          {"message", explanation.message},
          {"remedies", explanation.remedies},
          {"expectedStart", time_or_null(explanation.expected_start)}};
}

json to_json(const Event& event) {
  json body = {{"sequence", event.sequence}, {"time", iso_8601_time(event.time)},
               {"subject", event.subject},   {"name", event.name},
               {"from", event.from},         {"to", event.to},
               {"reason", event.reason},     {"message", event.message}};
  if (event.attempt) body["attempt"] = *event.attempt;
  return body;
}

}  // namespace gyre::jobs::api::internal

namespace gyre::jobs::api {

std::string_view state_name(ExecutionState state) {
  for (const auto& [known, name] : internal::kExecutionStates) {
    if (known == state) return name;
  }
  return "";
}

}  // namespace gyre::jobs::api
