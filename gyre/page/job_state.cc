#include "gyre/page/job_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include "gyre/base/process.h"
#include "gyre/metrics/json_number.h"
#include "gyre/page/internal/json.h"

namespace gyre::page {

namespace {

using Json = nlohmann::json;

/// What a rank may be behind the first without being late: reports do not come at the same moment.
constexpr std::int64_t kUsualLagSteps = 2;
constexpr double kUsualLagSeconds = 1;
/// The others wait for a rank if they lose at least this share of their time, and it loses less than half of theirs.
constexpr double kMuchWaiting = 0.2;

std::string end_words(int code, int signal) {
  if (signal != 0) return fmt::format("was killed by {}", signal_name(signal));
  return fmt::format("ended with exit code {}", code);
}

bool is_behind(std::int64_t steps, std::optional<double> steps_per_second) {
  if (steps <= kUsualLagSteps) return false;
  return static_cast<double>(steps) > kUsualLagSeconds * steps_per_second.value_or(0);
}

double seconds(std::int64_t time_us) { return static_cast<double>(time_us) / 1e6; }

template <typename Value>
Json or_null(const std::optional<Value>& value) {
  return value ? Json(*value) : Json(nullptr);
}

}  // namespace

std::string_view phase_name(Phase phase) {
  constexpr std::array<std::string_view, 7> kNames = {"failed",  "lost",    "late", "starting",
                                                      "running", "stopped", "ended"};
  return kNames.at(static_cast<std::size_t>(phase));
}

/// A rank, with what its metrics say.
struct JobState::Shown {
  int number = 0;
  const Rank* rank = nullptr;
  Phase phase = Phase::kRunning;
  std::string detail{};
  metrics::RankNow now{};
};

void JobState::add_event(const News& news, std::string kind, std::string text) {
  events_.push_back({.number = next_event_++,
                     .time_us = news.time_us,
                     .rank = news.rank >= 0 ? std::optional(news.rank) : std::nullopt,
                     .kind = std::move(kind),
                     .text = std::move(text)});
  if (events_.size() > kMostEvents) events_.pop_front();
}

void JobState::rank_started(const News& news, std::uint64_t log_bytes) {
  preparing_.clear();
  Rank rank;
  rank.process = news.process;
  rank.role = news.text;
  rank.host = news.host;
  rank.is_running = true;
  rank.started_us = news.time_us;
  rank.log_begin = log_bytes;
  ranks_[news.rank] = rank;
  std::string text = fmt::format("rank {} started", news.rank);
  if (!news.host.empty()) text += " on " + news.host;
  if (news.process != 0) text += fmt::format(" as process {}", news.process);
  add_event(news, "started", std::move(text));
}

void JobState::rank_ended(const News& news, std::uint64_t log_bytes) {
  const auto found = ranks_.find(news.rank);
  if (found == ranks_.end()) return;
  Rank& rank = found->second;
  rank.is_running = false;
  rank.asked = news.asked;
  rank.code = news.code;
  rank.signal = news.signal;
  rank.ended_us = news.time_us;
  rank.log_end = log_bytes;
  const bool well = news.code == 0 && news.signal == 0;
  add_event(news,
            well         ? "ended"
            : news.asked ? "stopped"
                         : "failed",
            fmt::format("rank {} {}{}", news.rank, end_words(news.code, news.signal),
                        news.asked ? ", as it was asked to end" : ""));
}

void JobState::hear(const News& news, std::uint64_t log_bytes) {
  switch (news.kind) {
    case News::Kind::kStarted: return rank_started(news, log_bytes);
    case News::Kind::kEnded: return rank_ended(news, log_bytes);
    case News::Kind::kLost: {
      if (const auto found = ranks_.find(news.rank); found != ranks_.end()) found->second.is_lost = true;
      return add_event(news, "lost", fmt::format("the others go on without rank {}", news.rank));
    }
    case News::Kind::kFailed:
      report_ = news.text;
      if (news.rank < 0) {
        return add_event(news, "failed",
                         ranks_.empty() ? "nothing was started" : "the job failed, and no rank was the first");
      }
      first_failed_ = news.rank;
      return add_event(news, "failed", fmt::format("rank {} failed first", news.rank));
    case News::Kind::kStopping:
      stopped_by_ = news.signal;
      return add_event(news, "stopped", fmt::format("all ranks got {}", signal_name(news.signal)));
    case News::Kind::kRestarting:
      restarts_ = news.code;
      first_failed_.reset();
      return add_event(news, "restarted", fmt::format("all ranks start again, restart {}", news.code));
    case News::Kind::kFinished:
      exit_code_ = news.code;
      return add_event(news, news.code == 0 ? "ended" : "failed",
                       news.code < 0 ? "the job ended without an exit code"
                                     : fmt::format("the job ended with exit code {}", news.code));
    case News::Kind::kPreparing:
      preparing_ = news.text;
      if (news.code == 1) add_event(news, "ended", news.text);
      return;
  }
}

std::vector<int> JobState::ranks() const {
  std::vector<int> numbers;
  for (const auto& [number, rank] : ranks_) numbers.push_back(number);
  return numbers;
}

std::map<int, std::string> JobState::roles() const {
  std::map<int, std::string> roles;
  for (const auto& [number, rank] : ranks_) roles[number] = rank.role;
  return roles;
}

Phase JobState::phase_of_ended(int number, const Rank& rank) const {
  if (first_failed_ == number) return Phase::kFailed;
  if (rank.is_lost) return Phase::kLost;
  if (rank.code == 0 && rank.signal == 0) return Phase::kEnded;
  return rank.asked ? Phase::kStopped : Phase::kFailed;
}

std::vector<JobState::Shown> JobState::shown(const metrics::Overview& metrics,
                                             const std::map<int, std::uint64_t>& log_bytes) const {
  std::map<int, metrics::RankNow> now;
  for (const metrics::RankNow& each : metrics.ranks()) now[each.rank] = each;
  std::vector<Shown> all;
  std::optional<std::int64_t> first_step;
  std::vector<double> waits;
  for (const auto& [number, rank] : ranks_) {
    all.push_back({.number = number, .rank = &rank, .detail = {}, .now = now[number]});
    const metrics::RankNow& its = all.back().now;
    if (!rank.is_running) continue;
    if (its.step) first_step = std::max(first_step.value_or(*its.step), *its.step);
    if (its.tells_waits) waits.push_back(its.waiting.value_or(0));
  }
  std::ranges::sort(waits);
  const double usual_wait = waits.empty() ? 0 : waits[waits.size() / 2];
  for (Shown& each : all) {
    if (each.rank->is_running && exit_code_) {
      each.phase = Phase::kLost;
      each.detail = "was not heard of again";
    } else if (!each.rank->is_running) {
      each.phase = phase_of_ended(each.number, *each.rank);
      each.detail = end_words(each.rank->code, each.rank->signal);
      if (each.phase == Phase::kFailed && first_failed_ == each.number) each.detail += "; it failed first";
    } else if (each.now.step && is_behind(*first_step - *each.now.step, each.now.steps_per_second)) {
      each.phase = Phase::kLate;
      each.detail = fmt::format("{} steps behind", *first_step - *each.now.step);
    } else if (each.now.tells_waits && usual_wait >= kMuchWaiting && each.now.waiting.value_or(0) < usual_wait / 2) {
      each.phase = Phase::kLate;
      each.detail = "the others wait for it";
    } else if (!each.now.step) {
      // Many programs log on rank 0 alone.
      const auto bytes = log_bytes.find(each.number);
      const bool has_written = bytes != log_bytes.end() && bytes->second > each.rank->log_begin;
      each.phase = first_step || has_written ? Phase::kRunning : Phase::kStarting;
    }
  }
  std::ranges::sort(all, {}, [this](const Shown& each) {
    return std::tuple(each.phase, first_failed_ != each.number, each.rank->is_running ? 0 : each.rank->ended_us,
                      each.phase == Phase::kLate ? each.now.step.value_or(0) : 0, each.number);
  });
  return all;
}

std::string_view JobState::state() const {
  if (!exit_code_) return stopped_by_ ? "stopping" : preparing_.empty() ? "running" : "preparing";
  if (stopped_by_) return "stopped";
  return *exit_code_ == 0 ? "ended" : "failed";
}

namespace {

Json latest_json(const metrics::Overview& metrics) {
  Json latest = Json::array();
  for (const auto& [name, point] : metrics.logged()) {
    if (latest.size() == JobState::kMostLatest) break;
    latest.push_back({{"name", name}, {"step", point.step}, {"value", metrics::json_number(point.value)}});
  }
  return latest;
}

}  // namespace

std::string JobState::json(const std::string& name, const metrics::Overview& metrics,
                           const std::map<int, std::uint64_t>& log_bytes) const {
  Json ranks = Json::array();
  for (const Shown& each : shown(metrics, log_bytes)) {
    const Rank& rank = *each.rank;
    ranks.push_back({{"rank", each.number},
                     {"phase", phase_name(each.phase)},
                     {"detail", each.detail},
                     {"role", rank.role},
                     {"host", rank.host},
                     {"process", rank.process},
                     {"started", seconds(rank.started_us)},
                     {"log_begin", rank.log_begin},
                     {"log_end", rank.is_running ? Json(nullptr) : Json(rank.log_end)},
                     {"value_time", each.now.time_us == 0 ? Json(nullptr) : Json(seconds(each.now.time_us))},
                     {"step", or_null(each.now.step)},
                     {"steps_per_second", or_null(each.now.steps_per_second)},
                     {"waiting", or_null(each.now.waiting)},
                     {"cpu_cores", or_null(each.now.cpu_cores)},
                     {"memory_bytes", or_null(each.now.memory_bytes)}});
  }
  Json events = Json::array();
  for (const Event& event : events_) {
    events.push_back({{"number", event.number},
                      {"time", seconds(event.time_us)},
                      {"rank", or_null(event.rank)},
                      {"kind", event.kind},
                      {"text", event.text}});
  }
  return internal::text_of({{"name", name},
                            {"state", state()},
                            {"exit_code", or_null(exit_code_)},
                            {"first_failed_rank", or_null(first_failed_)},
                            {"report", report_},
                            {"restarts", restarts_},
                            {"preparing", exit_code_ ? std::string() : preparing_},
                            {"ranks", std::move(ranks)},
                            {"latest", latest_json(metrics)},
                            {"names", metrics.logged().size()},
                            {"events", std::move(events)}});
}

}  // namespace gyre::page
