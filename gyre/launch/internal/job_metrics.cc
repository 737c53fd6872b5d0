#include "gyre/launch/internal/job_metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "gyre/base/clock.h"
#include "gyre/base/error.h"
#include "gyre/launch/internal/run_facts.h"

namespace gyre::launch {

namespace {

/// Of a report, so that it fits into a block.
constexpr std::size_t kLongestReport = 16'000;

}  // namespace

JobMetrics::JobMetrics(const Options& options, const std::vector<std::pair<std::string, std::string>>& facts)
    : name_(options.file.string()),
      ranks_(options.ranks),
      first_(options.first),
      for_service_(options.for_service),
      writer_(options.file, options.most_bytes) {
  if (!writer_.earlier().empty() && !for_service_) {
    words_ = fmt::format("gyre run: {} was that of an earlier job; it is now {}", name_, writer_.earlier().string());
  }
  for (const auto& [key, value] : facts) writer_.note(key, value);
}

void JobMetrics::add(std::span<const metrics::Sample> samples) {
  std::vector<metrics::Sample> ours;
  std::ranges::copy_if(samples, std::back_inserter(ours), [this](const auto& each) { return each.rank < ranks_; });
  for (metrics::Sample& sample : ours) sample.rank += first_;
  try {
    writer_.add(ours);
    if (writer_.dropped() > 0 && !std::exchange(said_full_, true)) {
      words_ = fmt::format("gyre run: {} is full; some of what the ranks log from here on is left out", name_);
    }
  } catch (const Error& error) {
    left_out_ += ours.size();
    say_failure(error.what());
  }
}

void JobMetrics::say_failure(const std::string& why) {
  if (std::exchange(said_failure_, true)) return;
  words_ = fmt::format("gyre run: {}; what the ranks log is left out until that is over", why);
}

void JobMetrics::tell(metrics::News news) {
  news.time_us = wall_clock_us();
  if (news.rank >= 0) news.rank += first_;
  try {
    writer_.event(to_line(news));
  } catch (const Error& error) {
    say_failure(error.what());
  }
}

void JobMetrics::started(int rank, pid_t process, const std::string& role, const std::string& host) {
  tell({.kind = metrics::News::Kind::kStarted, .rank = rank, .process = process, .text = role, .host = host});
}

void JobMetrics::ended(const ExitRecord& record) {
  tell({.kind = metrics::News::Kind::kEnded,
        .rank = record.rank,
        .code = record.status.code,
        .signal = record.status.signal,
        .asked = record.asked_to_end});
}

void JobMetrics::lost(const ExitRecord& record) { tell({.kind = metrics::News::Kind::kLost, .rank = record.rank}); }

void JobMetrics::failed(int rank, const std::string& report) {
  tell({.kind = metrics::News::Kind::kFailed,
        .rank = rank,
        .text = for_service_ ? std::string() : report.substr(0, kLongestReport)});
}

void JobMetrics::stopping(int signal) { tell({.kind = metrics::News::Kind::kStopping, .signal = signal}); }

void JobMetrics::restarting(int number) { tell({.kind = metrics::News::Kind::kRestarting, .code = number}); }

void JobMetrics::finish(int exit_code) {
  try {
    const std::uint64_t dropped = writer_.dropped() + left_out_;
    if (dropped > 0) writer_.note("dropped", std::to_string(dropped));
    writer_.note("exit_code", std::to_string(exit_code));
    tell({.kind = metrics::News::Kind::kFinished, .code = exit_code});
  } catch (const Error& error) {
    words_ = fmt::format("gyre run: {}", error.what());
  }
}

std::optional<JobMetrics> make_job_metrics(const LaunchOptions& options, int ranks, int first) {
  if (!options.metrics) return std::nullopt;
  JobMetrics::Options file{
      .file = *options.metrics, .ranks = ranks, .first = first, .for_service = options.metrics_for_service};
  if (options.metrics_bytes > 0) file.most_bytes = options.metrics_bytes;
  try {
    return std::make_optional<JobMetrics>(file, run_facts(options, ranks));
  } catch (const Error&) {
    if (!options.metrics_for_service) throw;
    return std::nullopt;
  }
}

}  // namespace gyre::launch
