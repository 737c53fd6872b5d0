#include "gyre/metrics/overview.h"

#include <algorithm>
#include <tuple>

#include "gyre/metrics/news.h"

namespace gyre::metrics {
namespace {

constexpr std::int64_t kWindowUs = 10'000'000;
/// Within it a program that logs each step would fill memory: readings closer together than this count as one.
constexpr std::int64_t kLeastGapUs = 50'000;
/// After this another name counts the steps (the next phase of a training), and a rate is that up to now.
constexpr std::int64_t kSilentUs = 2'000'000;

}  // namespace

void Overview::Counter::add(std::int64_t time_us, double value) {
  // It begins anew: a restarted rank. Clocks may be set back.
  if (!readings_.empty() && (value < readings_.back().value || time_us < readings_.back().time_us)) readings_.clear();
  const std::size_t count = readings_.size();
  if (count >= 2 && readings_.back().time_us - readings_[count - 2].time_us < kLeastGapUs) readings_.pop_back();
  readings_.push_back({time_us, value});
  while (readings_.size() > 2 && time_us - readings_[1].time_us >= kWindowUs) readings_.pop_front();
}

std::int64_t Overview::Counter::usual_gap_us() const {
  const std::size_t gaps = readings_.size() - 1;
  const std::int64_t mean_us = (readings_.back().time_us - readings_.front().time_us) / static_cast<std::int64_t>(gaps);
  return std::min(mean_us, readings_.back().time_us - readings_[gaps - 1].time_us);  // One of them may be a pause.
}

bool Overview::Counter::is_silent(std::int64_t now_us) const {
  if (readings_.size() < 2) return false;
  // A slow training is not a silent one.
  return now_us - readings_.back().time_us >= std::max(kWindowUs, 2 * usual_gap_us());
}

std::optional<double> Overview::Counter::per_second(std::int64_t now_us) const {
  if (readings_.size() < 2) return std::nullopt;
  if (is_silent(now_us)) return 0;
  const std::int64_t last_us = readings_.back().time_us;
  const std::int64_t end_us = now_us - last_us > std::max(kSilentUs, usual_gap_us()) ? now_us : last_us;
  std::size_t begin = 0;
  while (begin + 2 < readings_.size() && readings_[begin + 1].time_us <= end_us - kWindowUs) ++begin;
  const auto time_us = static_cast<double>(end_us - readings_[begin].time_us);
  if (time_us <= 0) return std::nullopt;
  return (readings_.back().value - readings_[begin].value) / (time_us / 1e6);
}

std::optional<double> Overview::Counter::latest() const {
  return readings_.empty() ? std::nullopt : std::optional(readings_.back().value);
}

void Overview::Rank::note_step(const Sample& sample) {
  std::uint64_t& count = logged.try_emplace(std::string(sample.name), 0).first->second;
  ++count;
  const bool is_silent = sample.time_us - steps_at_us > kSilentUs;
  if (steps_of.empty() || (steps_of != sample.name && (is_silent || count > logged[steps_of] + 1))) {
    steps_of = sample.name;
    logged_step = {};
  }
  if (steps_of != sample.name) return;
  steps_at_us = sample.time_us;
  logged_step.add(sample.time_us, static_cast<double>(sample.step));
}

void Overview::sample(const Sample& sample) {
  Rank& rank = ranks_[sample.rank];
  rank.time_us = std::max(rank.time_us, sample.time_us);
  if (!sample.name.starts_with(kReservedPrefix)) {
    rank.note_step(sample);
    rank.value_us = std::max(rank.value_us, sample.time_us);
    const auto lowest = lowest_rank_.find(sample.name);
    if (lowest != lowest_rank_.end() && lowest->second < sample.rank) return;
    lowest_rank_.insert_or_assign(std::string(sample.name), sample.rank);
    logged_.insert_or_assign(std::string(sample.name), Point{sample.step, sample.time_us, sample.value});
    return;
  }
  const std::string_view name = sample.name.substr(kReservedPrefix.size());
  if (name == "cpu_cores") rank.cpu_cores = sample.value;
  if (name == "memory_bytes") rank.memory_bytes = sample.value;
  if (name == "steps") {
    if (sample.value > rank.optimizer_steps.latest().value_or(0)) {
      rank.value_us = std::max(rank.value_us, sample.time_us);
    }
    rank.optimizer_steps.add(sample.time_us, sample.value);
  }
  if (name == "exposed_seconds") rank.exposed_seconds.add(sample.time_us, sample.value);
  if (name == "waiting_seconds") rank.waiting_seconds.add(sample.time_us, sample.value);
}

void Overview::note(std::string_view key, std::string_view value) {
  notes_.insert_or_assign(std::string(key), std::string(value));
}

void Overview::event(std::string_view line) {
  const auto news = parse_news(line);
  if (!news || news->kind != News::Kind::kStarted) return;
  if (const auto rank = ranks_.find(news->rank); rank != ranks_.end()) rank->second = {};
}

RankNow Overview::now_of(int number, const Rank& rank) {
  RankNow now;
  now.rank = number;
  now.time_us = rank.value_us;
  const Counter& steps = rank.logged_step.latest() ? rank.logged_step : rank.optimizer_steps;
  if (const auto step = steps.latest()) now.step = static_cast<std::int64_t>(*step);
  now.steps_per_second = steps.per_second(rank.time_us);
  // Without an optimizer of Gyre's, any operation's wait.
  const bool has_optimizer = rank.optimizer_steps.latest().value_or(0) > 0;
  const Counter& waits = has_optimizer ? rank.exposed_seconds : rank.waiting_seconds;
  now.tells_waits = waits.latest().has_value();
  if (!waits.is_silent(rank.time_us)) now.waiting = waits.per_second(rank.time_us);
  if (now.waiting) now.waiting = std::clamp(*now.waiting, 0.0, 1.0);
  now.cpu_cores = rank.cpu_cores;
  now.memory_bytes = rank.memory_bytes;
  return now;
}

std::vector<RankNow> Overview::ranks() const {
  std::vector<RankNow> all;
  for (const auto& [number, rank] : ranks_) all.push_back(now_of(number, rank));
  std::ranges::sort(
      all, {}, [](const RankNow& now) { return std::tuple(now.step.has_value(), now.step.value_or(0), now.rank); });
  return all;
}

}  // namespace gyre::metrics
