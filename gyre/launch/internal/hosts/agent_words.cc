#include "gyre/launch/internal/hosts/agent_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <utility>

#include "gyre/base/error.h"
#include "gyre/launch/internal/hosts/byte_strings.h"

namespace gyre::launch {

namespace {

using Json = nlohmann::json;

Json to_json(const ExitStatus& status) { return {{"code", status.code}, {"signal", status.signal}}; }

Json to_json(const std::vector<WatchdogWords>& watchdogs) {
  Json all = Json::array();
  for (const WatchdogWords& one : watchdogs) {
    all.push_back({one.rank, one.group, one.call, one.operation, one.elements, one.last_called});
  }
  return all;
}

std::vector<WatchdogWords> watchdogs_of(const Json& values, int ranks) {
  std::vector<WatchdogWords> all;
  for (const Json& one : values) {
    all.push_back({.rank = one.at(0),
                   .group = one.at(1),
                   .call = one.at(2),
                   .operation = one.at(3),
                   .elements = one.at(4),
                   .last_called = one.at(5)});
  }
  std::erase_if(all, [&](const WatchdogWords& one) { return one.rank < 0 || one.rank >= ranks; });
  return all;
}

ExitStatus status_of(const Json& value) { return {.code = value.at("code"), .signal = value.at("signal")}; }

Json to_json(const FailureReport& report) {
  Json value = {{"rank", report.rank},
                {"ranks", report.ranks},
                {"host", report.host},
                {"pid", report.pid},
                {"status", to_json(report.status)},
                {"after_ms", report.after.count()},
                {"child_failed_to_import", report.child_failed_to_import},
                {"last_lines", report.last_lines}};
  if (report.error) value["error"] = {report.error->place, report.error->source, report.error->error};
  if (report.log_file) value["log_file"] = *report.log_file;
  if (!report.stall.empty()) value["stall"] = report.stall;
  if (report.out_of_memory_kills) value["out_of_memory_kills"] = *report.out_of_memory_kills;
  if (report.memory_limit_bytes) value["memory_limit_bytes"] = *report.memory_limit_bytes;
  return value;
}

FailureReport report_of(const Json& value) {
  FailureReport report;
  report.rank = value.at("rank");
  report.ranks = value.at("ranks");
  report.host = value.at("host");
  report.pid = value.at("pid");
  report.status = status_of(value.at("status"));
  report.after = std::chrono::milliseconds(value.at("after_ms").get<std::int64_t>());
  report.child_failed_to_import = value.at("child_failed_to_import");
  report.last_lines = value.at("last_lines").get<std::deque<std::string>>();
  if (const auto error = value.find("error"); error != value.end()) {
    report.error = PythonError{.place = error->at(0), .source = error->at(1), .error = error->at(2)};
  }
  if (const auto file = value.find("log_file"); file != value.end()) report.log_file = file->get<std::string>();
  report.stall = value.value("stall", "");
  if (const auto kills = value.find("out_of_memory_kills"); kills != value.end()) {
    report.out_of_memory_kills = kills->get<std::int64_t>();
  }
  if (const auto limit = value.find("memory_limit_bytes"); limit != value.end()) {
    report.memory_limit_bytes = limit->get<std::uint64_t>();
  }
  return report;
}

std::vector<int> ranks_of(const Json& value, int ranks) {
  auto listed = value.get<std::vector<int>>();
  std::erase_if(listed, [&](int rank) { return rank < 0 || rank >= ranks; });
  return listed;
}

FromAgent words_of(const Json& value, int ranks) {
  FromAgent words;
  if (const auto ended = value.find("ended"); ended != value.end()) {
    words.ended = {.rank = ended->at("rank"), .status = status_of(*ended), .asked_to_end = ended->at("asked_to_end")};
    if (words.ended->rank < 0 || words.ended->rank >= ranks) words.ended.reset();
  }
  words.report = value.value("report", "");
  words.note = value.value("note", "");
  words.metrics = value.value("metrics", "");
  if (const auto log = value.find("log"); log != value.end()) {
    words.log = {.rank = log->at("rank"), .bytes = log->at("bytes")};
    if (words.log->rank < 0 || words.log->rank >= ranks) words.log.reset();
  }
  words.watchdog_has_acted = value.value("watchdog_has_acted", false);
  words.awaits_decision = value.value("awaits_decision", false);
  if (const auto dying = value.find("dying"); dying != value.end()) words.dying = dying->get<bool>();
  if (const auto done = value.find("done"); done != value.end()) {
    words.done = {.ended_because = ranks_of(done->at("ended_because"), ranks),
                  .killed_after_grace = ranks_of(done->at("killed_after_grace"), ranks),
                  .watchdogs = watchdogs_of(done->value("watchdogs", Json::array()), ranks),
                  .report = {}};
    if (const auto report = done->find("report"); report != done->end()) words.done->report = report_of(*report);
  }
  return words;
}

constexpr std::array kToAgent = {std::pair(ToAgent::Word::kARankHasFailed, std::string_view("failing")),
                                 std::pair(ToAgent::Word::kFirstFailure, std::string_view("first ")),
                                 std::pair(ToAgent::Word::kLost, std::string_view("lost ")),
                                 std::pair(ToAgent::Word::kStop, std::string_view("stop ")),
                                 std::pair(ToAgent::Word::kKill, std::string_view("kill"))};

}  // namespace

std::string to_line(const FromAgent& words) {
  Json value = Json::object();
  if (words.ended) {
    value["ended"] = to_json(words.ended->status);
    value["ended"]["rank"] = words.ended->rank;
    value["ended"]["asked_to_end"] = words.ended->asked_to_end;
  }
  if (!words.report.empty()) value["report"] = words.report;
  if (words.dying) value["dying"] = *words.dying;
  if (!words.note.empty()) value["note"] = words.note;
  if (!words.metrics.empty()) value["metrics"] = words.metrics;
  if (words.log) value["log"] = {{"rank", words.log->rank}, {"bytes", words.log->bytes}};
  if (words.watchdog_has_acted) value["watchdog_has_acted"] = true;
  if (words.awaits_decision) value["awaits_decision"] = true;
  if (words.done) {
    value["done"] = {{"ended_because", words.done->ended_because},
                     {"killed_after_grace", words.done->killed_after_grace}};
    if (!words.done->watchdogs.empty()) value["done"]["watchdogs"] = to_json(words.done->watchdogs);
    if (words.done->report) value["done"]["report"] = to_json(*words.done->report);
  }
  return fmt::format("{}{}", kFromAgent, with_bytes_as_characters(std::move(value)).dump());
}

std::optional<FromAgent> parse_from_agent(std::string_view line, int ranks) {
  if (!line.starts_with(kFromAgent)) return std::nullopt;
  try {
    return words_of(with_characters_as_bytes(Json::parse(line.substr(kFromAgent.size()))), ranks);
  } catch (const Json::exception&) {
    return std::nullopt;
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::string to_line(const ToAgent& words) {
  if (words.word == ToAgent::Word::kRankHasEnded) return words.text;
  const auto* const found = std::ranges::find(kToAgent, words.word, &decltype(kToAgent)::value_type::first);
  const bool numbered = found->second.ends_with(' ');
  return numbered ? fmt::format("{}{}", found->second, words.number) : std::string(found->second);
}

std::optional<ToAgent> parse_to_agent(std::string_view line) {
  if (line.starts_with("rank ")) return ToAgent{ToAgent::Word::kRankHasEnded, 0, std::string(line)};
  for (const auto& [word, text] : kToAgent) {
    if (!text.ends_with(' ')) {
      if (line == text) return ToAgent{word, 0, {}};
      continue;
    }
    if (!line.starts_with(text)) continue;
    ToAgent words{word, -1, {}};
    const char* const end = line.data() + line.size();
    const auto [stop, error] = std::from_chars(line.data() + text.size(), end, words.number);
    if (error != std::errc() || stop != end || words.number < 0) return std::nullopt;
    return words;
  }
  return std::nullopt;
}

}  // namespace gyre::launch
