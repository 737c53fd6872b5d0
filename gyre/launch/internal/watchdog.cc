#include "gyre/launch/internal/watchdog.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <csignal>
#include <map>
#include <utility>

#include "gyre/launch/internal/report.h"

namespace gyre::launch {

namespace {

constexpr std::size_t kLongestStallBytes = 1000;

/// What stands between `begin` and the first of `ends` behind it; empty if `begin` is not there.
std::string_view between(std::string_view line, std::string_view begin, std::string_view ends) {
  const std::size_t start = line.find(begin);
  if (start == std::string_view::npos) return {};
  const std::string_view rest = line.substr(start + begin.size());
  return rest.substr(0, rest.find_first_of(ends));
}

long number_in(std::string_view text) {
  long number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? number : -1;
}

/// "0(default_pg)" of "[PG ID 0 PG GUID 0(default_pg) Rank 2]".
std::string_view group_in(std::string_view line) { return between(line, " PG GUID ", " ]"); }

/// Of "…, last enqueued work: 2, …" and "Last enqueued NCCL work: 2, …".
std::string_view last_called_in(std::string_view line) {
  std::size_t start = line.find("ast enqueued ");
  if (start == std::string_view::npos) return {};
  return between(line.substr(start), "work: ", ",. ");
}

bool is_whole_job(std::string_view group) { return group == "0" || group.find("default_pg") != std::string_view::npos; }

/// Two ranks exchange a message without the others, and each names its own side.
bool is_message(const WatchdogWords& words) {
  return words.operation == "SEND" || words.operation == "RECV" || words.operation == "COALESCED";
}

/// Where all ranks pass as many elements, their numbers must agree.
bool has_equal_sizes(std::string_view operation) {
  constexpr std::array<std::string_view, 5> kEqual = {"ALLREDUCE", "BROADCAST", "REDUCE", "_ALLGATHER_BASE",
                                                      "_REDUCE_SCATTER_BASE"};
  return std::ranges::find(kEqual, operation) != kEqual.end();
}

std::string description_of(const WatchdogWords& words) {
  return has_equal_sizes(words.operation) ? fmt::format("{} ({})", words.operation, words.elements) : words.operation;
}

std::string with_noun(const std::vector<int>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", describe_ranks(ranks));
}

WatchdogVerdict disagreement(const std::map<std::string, std::vector<int>>& ranks_of, long call) {
  std::vector<std::string> sides;
  for (const auto& [description, ranks] : ranks_of) {
    sides.push_back(fmt::format("{} on {}", description, with_noun(ranks)));
  }
  WatchdogVerdict verdict;
  verdict.cause = "the ranks called different operations";
  verdict.call = fmt::format("number {} of its group is {}", call, fmt::join(sides, ", "));
  verdict.advice = "a branch of the program that ranks take differently, or data of different shapes";
  // Where one rank differs from all others, it is that one.
  if (ranks_of.size() != 2) return verdict;
  for (const auto& [description, ranks] : ranks_of) {
    const std::size_t others = ranks_of.begin()->second.size() + ranks_of.rbegin()->second.size() - ranks.size();
    if (ranks.size() == 1 && others > 1) verdict.rank = ranks.front();
  }
  return verdict;
}

}  // namespace

void WatchdogReader::add(std::string_view line) {
  if (line.find("stall: ") != std::string_view::npos && line.find("missing: ") != std::string_view::npos) {
    stall_ = line.substr(line.find("stall: ")).substr(0, kLongestStallBytes);
    return;
  }
  const bool timed_out = line.find("Watchdog caught collective operation timeout: ") != std::string_view::npos;
  const std::string_view last_called = last_called_in(line);
  if (!timed_out && last_called.empty()) return;
  const std::string_view group = group_in(line);
  if (timed_out && words_.call < 0) {  // The first is what the others follow from.
    words_.call = number_in(between(line, "SeqNum=", ","));
    words_.operation = between(line, "OpType=", ",");
    words_.elements =
        fmt::format("NumelIn={}, NumelOut={}", between(line, "NumelIn=", ","), between(line, "NumelOut=", ","));
    if (words_.group != group) words_.last_called.clear();
    words_.group = group;
  }
  if (words_.group.empty()) words_.group = group;
  has_spoken_ = true;
  if (!last_called.empty() && group == words_.group) words_.last_called = last_called;
}

std::optional<WatchdogWords> WatchdogReader::words() const {
  return has_spoken_ ? std::optional(words_) : std::nullopt;
}

bool was_ended_by_watchdog(int rank, const ExitStatus& status, const std::vector<WatchdogWords>& words) {
  const bool has_spoken = std::ranges::any_of(words, [&](const WatchdogWords& one) { return one.rank == rank; });
  return has_spoken && status.shell_code() == 128 + SIGABRT;
}

std::optional<WatchdogVerdict> judge_watchdogs(const std::vector<WatchdogWords>& words, int ranks) {
  const auto acted = std::ranges::find_if(words, [](const WatchdogWords& one) { return one.call >= 0; });
  if (acted == words.end()) return std::nullopt;
  const std::string group = acted->group;
  long call = acted->call;
  for (const WatchdogWords& one : words) {
    if (one.group == group && one.call >= 0) call = std::min(call, one.call);
  }
  std::map<std::string, std::vector<int>> ranks_of;
  std::vector<int> waiting, missing;
  std::vector<int> waiting_for_missing;  // Also those that were ended before their own limit.
  std::vector<bool> has_called(static_cast<std::size_t>(ranks));
  bool is_of_two = false;
  for (const WatchdogWords& one : words) {
    const bool in_group = one.group == group;
    // A later call whose limit has passed: this one was carried out here.
    const bool called = in_group && (one.call >= call || number_in(one.last_called) >= call);
    if (in_group && !called) missing.push_back(one.rank);
    has_called[static_cast<std::size_t>(one.rank)] = called;
    if (called && one.call <= call) waiting_for_missing.push_back(one.rank);
    if (!in_group || one.call != call) continue;
    is_of_two = is_of_two || is_message(one);
    waiting.push_back(one.rank);
    ranks_of[description_of(one)].push_back(one.rank);
  }
  if (!is_of_two && ranks_of.size() > 1) return disagreement(ranks_of, call);
  if (is_whole_job(group) && !is_of_two) {
    missing.clear();
    for (int rank = 0; rank < ranks; ++rank) {
      if (!has_called[static_cast<std::size_t>(rank)]) missing.push_back(rank);
    }
  }
  WatchdogVerdict verdict;
  verdict.call = fmt::format("number {} of its group, {}", call, ranks_of.begin()->first);
  if (!missing.empty() && !is_of_two) {
    verdict.cause = fmt::format("{} of {} did not make a call that {} waited for", with_noun(missing), ranks,
                                with_noun(waiting_for_missing));
    verdict.advice =
        "a collective on some ranks only (an evaluation or a checkpoint on rank 0), uneven numbers of batches, or work "
        "between two collectives that takes longer than the limit";
    if (missing.size() == 1) verdict.rank = missing.front();
    return verdict;
  }
  verdict.cause = fmt::format("a device did not finish what {} had called", with_noun(waiting));
  verdict.advice = is_of_two || !is_whole_job(group)
                       ? "another rank of the group that did not call, or a device, its library or the network hangs"
                       : "all ranks have called it: a device, its library or the network hangs, not the program";
  return verdict;
}

}  // namespace gyre::launch
