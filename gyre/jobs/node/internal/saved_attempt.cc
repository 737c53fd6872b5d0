#include "gyre/jobs/node/internal/saved_attempt.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "gyre/base/boot.h"
#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/jobs/node/internal/attempt_ends.h"
#include "gyre/jobs/node/launch_plan.h"
#include "gyre/jobs/orders/json_fields.h"

namespace gyre::jobs::node::internal {

using orders::exit_record_from_json;
using orders::ExitRecord;
using orders::JsonFields;
using orders::node_facts_from_json;
using orders::NodeFacts;
using orders::NodeReport;
using orders::parse_json;
using orders::work_order_from_json;
using orders::WorkOrder;

namespace {

using Json = nlohmann::json;

constexpr std::size_t kMostStateBytes = std::size_t{64} << 20;
constexpr std::size_t kMostNames = 100'000;
constexpr std::size_t kLongestText = std::size_t{32} << 10;  ///< Of a note, or of an error's message.
constexpr std::array<const char*, 5> kSteps = {"accepted", "preparing", "prepared", "running", "stopped"};

std::vector<std::string> texts_of(const Json& json, const char* what, std::size_t most, std::size_t longest) {
  const auto fail = [&](const char* why) { throw Error(ErrorCode::kCorruptData, fmt::format("{} {}", what, why)); };
  if (!json.is_array() || json.size() > most) fail("must be an array that is not longer than it may be");
  std::vector<std::string> texts;
  for (const Json& each : json) {
    if (!each.is_string()) fail("must be strings");
    texts.push_back(each.get<std::string>());
    if (texts.back().size() > longest) fail("has a string that is too long");
  }
  return texts;
}

Step step_from_json(const JsonFields& fields) {
  const std::string step = fields.text("step");
  const auto* found = std::ranges::find(kSteps, step);
  if (found == kSteps.end()) fields.refuse("step", "is not known");
  return static_cast<Step>(found - kSteps.begin());
}

std::map<std::string, std::uint64_t> lengths_from_json(const JsonFields& fields) {
  std::map<std::string, std::uint64_t> lengths;
  if (!fields.at("log_lengths").is_object()) fields.refuse("log_lengths", "must be an object");
  for (const auto& [path, length] : fields.at("log_lengths").items()) {
    if (!length.is_number_unsigned()) fields.refuse("log_lengths", "must be lengths");
    lengths[path] = length.get<std::uint64_t>();
  }
  return lengths;
}

/// Other nodes of the job plan with them.
NodeFacts checked_facts(const JsonFields& fields, const WorkOrder& order) {
  NodeFacts facts = node_facts_from_json(fields.at("facts"));
  if (static_cast<int>(facts.ports.size()) != ports_needed(order, order.node)) {
    fields.refuse("facts", "have another number of ports than the job needs");
  }
  return facts;
}

/// The last state of an attempt of which no later one could be written.
std::filesystem::path ended_state(const NodeFolders& folders) {
  return std::filesystem::path(folders.current()).replace_filename("ended.json");
}

std::optional<SavedAttempt> read_state(const std::filesystem::path& file) {
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) return std::nullopt;
  const Bytes bytes = read_file(file, kMostStateBytes);
  return saved_attempt_from_json(parse_json(as_text(bytes), kMostStateBytes, file.string()), file.string());
}

ExitRecord checked_record(const JsonFields& fields, const SavedAttempt& state) {
  ExitRecord record = exit_record_from_json(fields.at("record"));
  const auto is_known = [&](const std::string& code) {
    return code == resources::error_code::kJobFailed || code == resources::error_code::kPreparationFailed ||
           code == resources::error_code::kInternal || code == resources::error_code::kUnusablePath ||
           code == resources::error_code::kContainer;
  };
  if (record.error && (!is_known(record.error->code) || record.error->message.size() > kLongestText)) {
    fields.refuse("record", "has an error that no job can have");
  }
  record.started_us = state.started_us;
  record.ended_us = state.record ? state.record->ended_us : wall_clock_us();
  return record;
}

}  // namespace

Json progress_of(const SavedAttempt& state) {
  return {{"step", kSteps[static_cast<std::size_t>(state.step)]},
          {"facts", state.facts ? to_json(*state.facts) : Json()},
          {"record", state.record ? to_json(*state.record) : Json()},
          {"notes", state.notes},
          {"log_lengths", state.log_lengths}};
}

std::vector<std::string> with_more_notes(std::vector<std::string> notes, const Json& all) {
  std::vector<std::string> more = texts_of(all, "the attempt's notes", NodeReport::kMostNotes, kLongestText);
  if (more.size() < notes.size() || !std::equal(notes.begin(), notes.end(), more.begin())) {
    throw Error(ErrorCode::kCorruptData, "the attempt's notes are not the former ones and more");
  }
  return more;
}

SavedAttempt with_progress(SavedAttempt state, const Json& progress) {
  const JsonFields fields(progress, "the progress of an attempt");
  const Step step = step_from_json(fields);
  if (step < state.step) fields.refuse("step", "goes back");
  if (fields.has("facts")) {
    NodeFacts facts = checked_facts(fields, state.order);
    if (state.facts && facts != *state.facts) fields.refuse("facts", "are others than before");
    state.facts = std::move(facts);
  } else if (state.facts || step == Step::kPrepared || step == Step::kRunning) {
    fields.refuse("facts", "are missing");
  }
  if (fields.has("record") != (step == Step::kStopped))
    fields.refuse("record", "belongs to an attempt that has stopped");
  if (fields.has("record")) state.record = checked_record(fields, state);
  state.step = step;
  state.notes = with_more_notes(std::move(state.notes), fields.at("notes"));
  state.log_lengths = lengths_from_json(fields);
  return state;
}

Json to_json(const SavedAttempt& state) {
  Json all_facts = Json::array();
  for (const NodeFacts& facts : state.all_facts) all_facts.push_back(to_json(facts));
  Json json = progress_of(state);
  json.update(Json{{"order", to_json(state.order)},
                   {"started_us", state.started_us},
                   {"started_s", state.started_s},
                   {"boot", state.boot},
                   {"all_facts", all_facts},
                   {"memory", state.memory}});
  return json;
}

SavedAttempt saved_attempt_from_json(const Json& json, std::string_view what) {
  const JsonFields fields(json, what);
  SavedAttempt state;
  state.order = work_order_from_json(fields.at("order"));
  state.step = step_from_json(fields);
  state.started_us = fields.integer("started_us", 0, std::numeric_limits<std::int64_t>::max());
  if (!fields.at("started_s").is_number()) fields.refuse("started_s", "must be a number");
  state.started_s = fields.at("started_s").get<double>();
  state.boot = fields.text("boot");
  if (fields.has("facts")) state.facts = node_facts_from_json(fields.at("facts"));
  for (const Json& facts : fields.array("all_facts", state.order.nodes.size())) {
    state.all_facts.push_back(node_facts_from_json(facts));
  }
  if (fields.has("record")) state.record = exit_record_from_json(fields.at("record"));
  state.memory = texts_of(fields.at("memory"), "memory", kMostNames, kMostStateBytes);
  state.notes = texts_of(fields.at("notes"), "notes", kMostNames, kMostStateBytes);
  state.log_lengths = lengths_from_json(fields);
  return state;
}

void save(const SavedAttempt& state, const NodeFolders& folders) {
  const std::string text = to_json(state).dump(-1, ' ', false, Json::error_handler_t::replace);
  write_own_file(folders, folders.current(), text);
  // It holds the job's secrets. Its folder is closed to others already; copies of it need not be.
  std::filesystem::permissions(folders.current(), std::filesystem::perms(0600));
  std::error_code ignored;
  if (state.step == Step::kAccepted) std::filesystem::remove(ended_state(folders), ignored);
}

void write_own_file(const NodeFolders& folders, const std::filesystem::path& file, const std::string& text) {
  try {
    write_file_atomically(file, as_bytes(text));
  } catch (const Error& error) {
    std::string message = error.what();
    const std::string name = folders.own().string();
    const std::size_t at = message.find(name);
    if (at != std::string::npos) message.replace(at, name.size(), NodeFolders(folders.root()).own().string());
    throw Error(error.code(), message);
  }
}

void mark_ended(const NodeFolders& folders) {
  std::error_code ignored;
  std::filesystem::rename(folders.current(), ended_state(folders), ignored);
}

void remove_state(const NodeFolders& folders) {
  std::filesystem::remove(folders.current());
  std::filesystem::remove(ended_state(folders));
}

std::optional<SavedAttempt> load_state(const NodeFolders& folders) {
  if (auto state = read_state(folders.current())) return state;
  auto state = read_state(ended_state(folders));
  if (!state || state->step == Step::kStopped) return state;
  state->step = Step::kStopped;
  state->record = record_of(internal_failure(state->order,
                                             "the attempt has ended, and how could not be written down: "
                                             "the disk of its node was full"),
                            state->started_us);
  return state;
}

Deadline wall_clock_limit(const SavedAttempt& state, std::chrono::seconds more) {
  const auto limit_s = static_cast<double>((state.order.job.max_wall_clock_time + more).count());
  const double left_s = state.started_s + limit_s - boot_time_s();
  return Deadline::after(std::chrono::milliseconds(static_cast<std::int64_t>(std::max(left_s, 0.0) * 1000)));
}

double boot_time_s() { return static_cast<double>(boot_clock_us()) * 1e-6; }

}  // namespace gyre::jobs::node::internal
