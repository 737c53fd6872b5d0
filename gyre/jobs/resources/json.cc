#include "gyre/jobs/resources/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <ctime>
#include <sstream>
#include <utility>

#include "gyre/base/error.h"
#include "gyre/jobs/spec/write.h"

namespace gyre::jobs::resources {
namespace {

using nlohmann::json;

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

json resource(const std::string& id, const std::string& name, std::string_view type, json properties) {
  return {{"id", id},
          {"name", name},
          {"type", "Microsoft.BatchAI/" + std::string(type)},
          {"properties", std::move(properties)}};
}

/// Of an answer. Error(kProtocol) where it does not have what all of its kind have.
template <typename Read>
auto read_answer(const char* what, const Read& read) {
  try {
    return read();
  } catch (const json::exception& error) {
    throw Error(ErrorCode::kProtocol, fmt::format("the server's answer is not {}: {}", what, error.what()));
  }
}

std::string text_of(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::optional<TimeUs> time_of(const json& object, const char* key) { return time_from_iso_8601(text_of(object, key)); }

/// Nothing where it is null, missing, or a state that only a later version has.
template <typename State>
std::optional<State> state_of(const json& object, const char* key) {
  const std::string text = text_of(object, key);
  const auto known = state_names<State>();
  return std::ranges::find(known, text) == known.end() ? std::nullopt : std::optional(state_named<State>(text));
}

std::vector<ResourceError> errors_from_json(const json& list) {
  std::vector<ResourceError> errors;
  for (const json& each : list) {
    ResourceError error{.code = text_of(each, "code"), .message = text_of(each, "message")};
    for (const json& detail : each.value("details", json::array())) {
      error.details[text_of(detail, "name")] = text_of(detail, "value");
    }
    errors.push_back(std::move(error));
  }
  return errors;
}

/// "/workspaces/W/experiments/E/jobs/J", or the same in other letters or behind a prefix.
JobName job_name_of(const std::string& id) {
  std::vector<std::string> words;
  std::stringstream text(id);
  for (std::string word; std::getline(text, word, '/');) words.push_back(word);
  if (words.size() < 6) return {};
  const std::size_t last = words.size() - 1;
  return {words[last - 4], words[last - 2], words[last]};
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

std::optional<TimeUs> time_from_iso_8601(const std::string& text) {
  std::tm fields{};
  const char* rest = ::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &fields);
  if (rest == nullptr) return std::nullopt;
  TimeUs time = static_cast<TimeUs>(::timegm(&fields)) * 1'000'000;
  if (*rest != '.') return time;
  for (TimeUs unit = 100'000; unit > 0 && std::isdigit(static_cast<unsigned char>(*++rest)) != 0; unit /= 10) {
    time += unit * (*rest - '0');
  }
  return time;
}

std::string id_of(const ClusterName& name) {
  return fmt::format("/workspaces/{}/clusters/{}", name.workspace, name.cluster);
}
std::string id_of(const ExperimentName& name) {
  return fmt::format("/workspaces/{}/experiments/{}", name.workspace, name.experiment);
}
std::string id_of(const JobName& name) {
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
  properties["provisioningState"] = name(cluster.provisioning_state);
  properties["provisioningStateTransitionTime"] = iso_8601_time(cluster.provisioning_state_transition_time);
  properties["allocationState"] = name(cluster.allocation_state);
  properties["allocationStateTransitionTime"] = iso_8601_time(cluster.allocation_state_transition_time);
  properties["errors"] = errors_json(cluster.errors);
  properties["currentNodeCount"] = cluster.current_node_count;
  const NodeStateCounts& counts = cluster.node_state_counts;
  properties["nodeStateCounts"] = {{"idleNodeCount", counts.idle},
                                   {"runningNodeCount", counts.running},
                                   {"preparingNodeCount", counts.preparing},
                                   {"unusableNodeCount", counts.unusable},
                                   {"leavingNodeCount", counts.leaving}};
  return resource(id_of(cluster.name), cluster.name.cluster, "workspaces/clusters", std::move(properties));
}

json to_json(const Node& node) {
  return {{"nodeId", node.name},
          {"state", name(node.state)},
          {"stateTransitionTime", iso_8601_time(node.state_transition_time)},
          {"ipAddress", node.address.empty() ? json() : json(node.address)},
          {"gpus", number_or_null(node.gpus)},
          {"job", node.job ? json(*node.job) : json()},
          {"problem", node.problem.empty() ? json() : json(node.problem)}};
}

json to_json(const Experiment& experiment) {
  return resource(id_of(experiment.name), experiment.name.experiment, "workspaces/experiments",
                  {{"creationTime", iso_8601_time(experiment.creation_time)},
                   {"provisioningState", name(experiment.provisioning_state)},
                   {"provisioningStateTransitionTime", iso_8601_time(experiment.provisioning_state_transition_time)}});
}

json to_json(const Job& job) {
  json properties = spec::to_json(job.spec);
  properties["toolType"] = spec::tool_type(job.spec.toolkit);
  properties["jobOutputDirectoryPathSegment"] = job.job_output_directory_path_segment;
  properties["creationTime"] = iso_8601_time(job.creation_time);
  properties["provisioningState"] = name(job.provisioning_state);
  properties["provisioningStateTransitionTime"] = iso_8601_time(job.provisioning_state_transition_time);
  properties["executionState"] = name(job.execution_state);
  properties["executionStateTransitionTime"] = iso_8601_time(job.execution_state_transition_time);
  const ExecutionInfo& info = job.execution_info;
  properties["executionInfo"] = {{"startTime", time_or_null(info.start_time)},
                                 {"endTime", time_or_null(info.end_time)},
                                 {"exitCode", number_or_null(info.exit_code)},
                                 {"errors", errors_json(info.errors)}};
  json body = resource(id_of(job.name), job.name.job, "workspaces/experiments/jobs", std::move(properties));
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

Job job_from_json(const json& body) {
  return read_answer("a job", [&] {
    const json& properties = body.at("properties");
    const json& info = properties.at("executionInfo");
    const json own = body.value("gyre", json::object());
    Job job{.name = job_name_of(text_of(body, "id")), .uuid = text_of(own, "uuid")};
    job.spec.cluster_id = text_of(properties.value("cluster", json::object()), "id");
    job.spec.node_count = properties.value("nodeCount", 1);
    job.creation_time = time_of(properties, "creationTime").value_or(0);
    const auto state = state_of<ExecutionState>(properties, "executionState");
    if (!state) throw Error(ErrorCode::kProtocol, "the server's answer has a job without a known state");
    job.execution_state = *state;
    job.execution_state_transition_time = time_of(properties, "executionStateTransitionTime").value_or(0);
    job.execution_info = {.start_time = time_of(info, "startTime"),
                          .end_time = time_of(info, "endTime"),
                          .errors = errors_from_json(info.value("errors", json::array()))};
    if (const auto code = info.find("exitCode"); code != info.end() && code->is_number_integer()) {
      job.execution_info.exit_code = code->get<int>();
    }
    job.attempts = own.value("attempts", 0);
    job.retry_time = time_of(own, "retryTime");
    job.submitter = text_of(own, "submitter");
    job.account = text_of(own, "account");
    return job;
  });
}

Explanation explanation_from_json(const json& body) {
  return read_answer("an explanation", [&] {
    return Explanation{.reason = text_of(body, "reason"),
                       .message = text_of(body, "message"),
                       .remedies = body.value("remedies", std::vector<std::string>()),
                       .expected_start = time_of(body, "expectedStart")};
  });
}

Event event_from_json(const json& body) {
  return read_answer("an event", [&] {
    Event event{.sequence = body.value("sequence", std::int64_t{0}),
                .time = time_of(body, "time").value_or(0),
                .subject = text_of(body, "subject"),
                .name = text_of(body, "name"),
                .from = text_of(body, "from"),
                .to = text_of(body, "to"),
                .reason = text_of(body, "reason"),
                .message = text_of(body, "message")};
    if (body.contains("attempt")) event.attempt = body.at("attempt").get<int>();
    return event;
  });
}

std::string details_text(const ResourceError& error) { return error.details.empty() ? "" : json(error.details).dump(); }

std::map<std::string, std::string> details_from_text(const std::string& text) {
  std::map<std::string, std::string> details;
  const json object = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return details;
  for (const auto& [name, value] : object.items()) {
    details[name] = value.is_string() ? value.get<std::string>() : value.dump();
  }
  return details;
}

}  // namespace gyre::jobs::resources
