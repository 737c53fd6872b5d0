#include "gyre/jobs/agent/internal/node_state.h"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>

#include "gyre/base/boot.h"
#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/jobs/agent/internal/json_fields.h"

namespace gyre::jobs::agent::internal {

namespace {

using Json = nlohmann::json;

constexpr std::size_t kMostStateBytes = std::size_t{64} << 20;
constexpr std::size_t kMostNames = 100'000;
constexpr std::array<const char*, 5> kSteps = {"accepted", "preparing", "prepared", "running", "stopped"};

std::vector<std::string> list_of(const JsonFields& fields, const char* name) {
  std::vector<std::string> texts;
  for (const Json& each : fields.array(name, kMostNames)) {
    if (!each.is_string()) fields.refuse(name, "must be an array of strings");
    texts.push_back(each.get<std::string>());
  }
  return texts;
}

}  // namespace

void save(const NodeState& state, const NodeFolders& folders) {
  Json all_facts = Json::array();
  for (const NodeFacts& facts : state.all_facts) all_facts.push_back(to_json(facts));
  const Json json = {{"order", to_json(state.order)},
                     {"step", kSteps[static_cast<std::size_t>(state.step)]},
                     {"started_us", state.started_us},
                     {"started_s", state.started_s},
                     {"boot", state.boot},
                     {"facts", state.facts ? to_json(*state.facts) : Json()},
                     {"all_facts", all_facts},
                     {"record", state.record ? to_json(*state.record) : Json()},
                     {"memory", state.memory},
                     {"notes", state.notes},
                     {"log_lengths", state.log_lengths}};
  write_file_atomically(folders.current(), as_bytes(json.dump()));
}

std::optional<NodeState> load_state(const NodeFolders& folders) {
  std::error_code ignored;
  if (!std::filesystem::exists(folders.current(), ignored)) return std::nullopt;
  const Bytes bytes = read_file(folders.current(), kMostStateBytes);
  const Json json = parse_json(as_text(bytes), kMostStateBytes, folders.current().string());
  const JsonFields fields(json, folders.current().string());
  NodeState state;
  state.order = work_order_from_json(fields.at("order"));
  const std::string step = fields.text("step");
  const auto* found = std::ranges::find(kSteps, step);
  if (found == kSteps.end()) fields.refuse("step", "is not known");
  state.step = static_cast<Step>(found - kSteps.begin());
  state.started_us = fields.integer("started_us", 0, std::numeric_limits<std::int64_t>::max());
  if (!fields.at("started_s").is_number()) fields.refuse("started_s", "must be a number");
  state.started_s = fields.at("started_s").get<double>();
  state.boot = fields.text("boot");
  if (fields.has("facts")) state.facts = node_facts_from_json(fields.at("facts"));
  for (const Json& facts : fields.array("all_facts", state.order.nodes.size())) {
    state.all_facts.push_back(node_facts_from_json(facts));
  }
  if (fields.has("record")) state.record = exit_record_from_json(fields.at("record"));
  state.memory = list_of(fields, "memory");
  state.notes = list_of(fields, "notes");
  for (const auto& [path, length] : fields.at("log_lengths").items()) {
    if (!length.is_number_unsigned()) fields.refuse("log_lengths", "must be lengths");
    state.log_lengths[path] = length.get<std::uint64_t>();
  }
  return state;
}

double boot_time_s() { return static_cast<double>(boot_clock_us()) * 1e-6; }

}  // namespace gyre::jobs::agent::internal
