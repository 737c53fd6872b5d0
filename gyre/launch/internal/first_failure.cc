#include "gyre/launch/internal/first_failure.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <csignal>
#include <utility>

#include "gyre/base/check.h"

namespace gyre::launch {

namespace {

constexpr int kStrongest = 4;
constexpr int kSuspected = 3;

int signal_in(const ExitStatus& status) {
  constexpr int kSignals = 64;
  const bool from_shell = status.signal == 0 && status.code > 128 && status.code <= 128 + kSignals;
  return from_shell ? status.code - 128 : status.signal;
}

}  // namespace

std::optional<RankReport> parse_report(std::string_view line, int ranks) {
  constexpr std::array kWords = {
      std::pair("ends ", RankReport::Word::kEnds), std::pair("failed ", RankReport::Word::kFailed),
      std::pair("left ", RankReport::Word::kLeft), std::pair("may-be-lost ", RankReport::Word::kMayBeLost)};
  for (const auto& [text, word] : kWords) {
    if (!line.starts_with(text)) continue;
    line.remove_prefix(std::string_view(text).size());
    int rank = -1;
    const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), rank);
    const bool valid = error == std::errc() && end == line.data() + line.size() && rank >= 0 && rank < ranks;
    return valid ? std::optional(RankReport{word, rank}) : std::nullopt;
  }
  return std::nullopt;
}

void FirstFailure::hear(const RankReport& report) {
  const bool leaves = failures_.empty() && report.word != RankReport::Word::kFailed;
  if (leaves && std::ranges::find(left_, report.rank) == left_.end()) left_.push_back(report.rank);
  const auto is_same = [&](const RankReport& other) { return other.word == report.word && other.rank == report.rank; };
  const bool announced =
      report.word == RankReport::Word::kEnds && std::any_of(reports_.begin(), reports_.end(), is_same);
  if (announced) return;  // It ends once; its first word counts.
  std::erase_if(reports_, is_same);
  reports_.push_back(report);
}

std::vector<int> FirstFailure::left_before(int cause) const { return {left_.begin(), std::ranges::find(left_, cause)}; }

std::optional<int> FirstFailure::suspect() const {
  std::optional<int> failed;
  std::optional<int> left;
  for (const auto& [word, rank] : reports_) {
    if (ended_well_.contains(rank)) continue;
    if (word == RankReport::Word::kEnds) return failed ? failed : rank;
    (word == RankReport::Word::kFailed ? failed : left) = rank;
  }
  return failed ? failed : left;
}

int FirstFailure::evidence(const RankFailure& failure) const {
  const int signal = signal_in(failure.status);
  const bool may_be_a_consequence = signal == 0 || signal == SIGABRT || signal == SIGPIPE;
  if (!may_be_a_consequence) return kStrongest;
  if (failure.rank == suspect()) return kSuspected;
  return signal == 0 ? 1 : 2;
}

void FirstFailure::add(const RankFailure& failure) {
  GYRE_CHECK(!failure.status.success());
  failures_.push_back(failure);
}

std::optional<RankFailure> FirstFailure::best() const {
  const auto weaker = [this](const RankFailure& a, const RankFailure& b) { return evidence(a) < evidence(b); };
  const auto strongest = std::max_element(failures_.begin(), failures_.end(), weaker);  // The first of equals.
  return strongest == failures_.end() ? std::nullopt : std::optional(*strongest);
}

std::optional<RankFailure> FirstFailure::final_at(SteadyClock::time_point now) const {
  const auto settled_at = settles_at();
  return settled_at && now >= *settled_at ? best() : std::nullopt;
}

std::optional<SteadyClock::time_point> FirstFailure::settles_at() const {
  const auto likely = best();
  if (!likely) return std::nullopt;
  const auto first_seen = failures_.front().when;
  if (evidence(*likely) == kStrongest) return first_seen;
  const auto suspected = suspect();
  const bool wait_for_suspect = suspected && suspected != likely->rank;
  if (wait_for_suspect || dying_) return first_seen + kLongestSettleTime;
  return first_seen + (words_awaited_ ? kTimeForWords : kSettleTime);
}

}  // namespace gyre::launch
