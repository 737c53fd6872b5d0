#include "gyre/jobs/orders/node_report.h"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "gyre/base/bytes.h"
#include "gyre/base/check.h"
#include "gyre/base/file.h"
#include "gyre/jobs/orders/json_fields.h"

namespace gyre::jobs::orders {

namespace {

using Json = nlohmann::json;

constexpr std::array<const char*, 5> kPhases = {"preparing", "prepared", "running", "done", "ended"};
constexpr std::array<const char*, 5> kReasons = {"request", "other_node", "wall_clock", "lease_lost", "preempted"};
constexpr std::size_t kMostDetails = 16;
constexpr std::size_t kMostOutputs = 1000;
constexpr std::size_t kMostLeftBehind = 1000;
constexpr std::int64_t kLatest = std::numeric_limits<std::int64_t>::max();

std::map<std::string, std::string> texts_from_json(const JsonFields& fields, const char* name, std::size_t most) {
  const Json& object = fields.at(name);
  if (!object.is_object() || object.size() > most) fields.refuse(name, "must be a small object of strings");
  const JsonFields members(object, name);
  std::map<std::string, std::string> texts;
  for (const auto& [key, value] : object.items()) texts[key] = members.text(key.c_str());
  return texts;
}

std::vector<std::string> list_from_json(const JsonFields& fields, const char* name, std::size_t most) {
  std::vector<std::string> texts;
  for (const Json& each : fields.array(name, most)) {
    if (!each.is_string()) fields.refuse(name, "must be an array of strings");
    texts.push_back(each.get<std::string>());
  }
  return texts;
}

resources::ResourceError job_error_from_json(const Json& json) {
  const JsonFields fields(json, "the error of an exit record");
  return {fields.text("code"), fields.text("message"), texts_from_json(fields, "details", kMostDetails)};
}

}  // namespace

const char* name_of(Phase phase) { return kPhases[static_cast<std::size_t>(phase)]; }
const char* name_of(StopReason reason) { return kReasons[static_cast<std::size_t>(reason)]; }

std::optional<Phase> phase_named(const std::string& name) {
  const auto* found = std::ranges::find(kPhases, name);
  if (found == kPhases.end()) return std::nullopt;
  return static_cast<Phase>(found - kPhases.begin());
}

std::optional<StopReason> stop_reason_named(const std::string& name) {
  const auto* found = std::ranges::find(kReasons, name);
  if (found == kReasons.end()) return std::nullopt;
  return static_cast<StopReason>(found - kReasons.begin());
}

Json to_json(const ExitRecord& record) {
  Json error;
  if (record.error) {
    error = {{"code", record.error->code}, {"message", record.error->message}, {"details", record.error->details}};
  }
  return {{"exit_code", record.exit_code},       {"error", error},
          {"asked_to_end", record.asked_to_end}, {"was_done", record.was_done},
          {"started_us", record.started_us},     {"ended_us", record.ended_us},
          {"left_behind", record.left_behind}};
}

ExitRecord exit_record_from_json(const Json& json) {
  const JsonFields fields(json, "an exit record");
  ExitRecord record;
  constexpr int kHighestCode = 65'535;
  record.exit_code = static_cast<int>(fields.integer("exit_code", 0, kHighestCode));
  if (fields.has("error")) record.error = job_error_from_json(fields.at("error"));
  record.asked_to_end = fields.boolean("asked_to_end");
  record.was_done = fields.has("was_done") && fields.boolean("was_done");  // Older records have none.
  record.started_us = fields.integer("started_us", 0, kLatest);
  record.ended_us = fields.integer("ended_us", 0, kLatest);
  record.left_behind = list_from_json(fields, "left_behind", kMostLeftBehind);
  return record;
}

Json to_json(const NodeReport& report) {
  return {{"attempt", report.attempt},
          {"phase", name_of(report.phase)},
          {"facts", report.facts ? to_json(*report.facts) : Json()},
          {"record", report.record ? to_json(*report.record) : Json()},
          {"log_folder", report.log_folder},
          {"outputs", report.outputs},
          {"notes", report.notes},
          {"sends_logs", report.sends_logs}};
}

NodeReport node_report_from_json(const Json& json) {
  const JsonFields fields(json, "a node's report");
  NodeReport report;
  report.attempt = fields.text("attempt");
  if (!is_plain_name(report.attempt)) fields.refuse("attempt", "is not a name");
  const auto phase = phase_named(fields.text("phase"));
  if (!phase) fields.refuse("phase", "is not known");
  report.phase = *phase;
  if (fields.has("facts")) report.facts = node_facts_from_json(fields.at("facts"));
  if (fields.has("record")) report.record = exit_record_from_json(fields.at("record"));
  if (report.phase == Phase::kEnded && !report.record) fields.refuse("record", "is missing at the end");
  report.log_folder = fields.text("log_folder");
  report.outputs = texts_from_json(fields, "outputs", kMostOutputs);
  report.notes = list_from_json(fields, "notes", NodeReport::kMostNotes);
  report.sends_logs = fields.has("sends_logs") && fields.boolean("sends_logs");
  return report;
}

NodeReport read_node_report(const std::filesystem::path& file) {
  constexpr std::size_t kMostBytes = std::size_t{64} << 20;
  const Bytes bytes = read_file(file, kMostBytes);
  return node_report_from_json(parse_json(as_text(bytes), kMostBytes, file.string()));
}

}  // namespace gyre::jobs::orders
