#include "gyre/page/stored_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <string_view>
#include <tuple>
#include <utility>

#include "gyre/base/error.h"
#include "gyre/base/rank_file.h"
#include "gyre/metrics/file.h"
#include "gyre/metrics/prometheus.h"
#include "gyre/net/http/error.h"
#include "gyre/page/internal/job_texts.h"

namespace gyre::page {

namespace {

using Kind = News::Kind;

constexpr std::chrono::milliseconds kBetweenLooks{500};
/// Of facts about the run; all others are left out, since their number has no limit.
constexpr std::array<std::string_view, 7> kNotes = {"ranks", "servers",   "host",   "started",
                                                    "gyre",  "exit_code", "dropped"};
constexpr std::size_t kLongestNote = 1'000;
constexpr std::size_t kLongestRole = 100;
constexpr std::size_t kLongestReport = 16'000;
/// Of all timelines, by one look: a tenth of a second or so.
constexpr std::size_t kTimelineBytesOfLook = std::size_t{8} << 20;

/// Of rank 3 "3", and of processes of `tensorFlowSettings` "wk-0" and "ps-0", as nodes name their logs.
std::string log_name(int rank, std::string_view role) {
  const std::size_t space = role.find(' ');
  if (space == std::string_view::npos) return std::to_string(rank);
  return fmt::format("{}-{}", role.starts_with("ps ") ? "ps" : "wk", role.substr(space + 1));
}

}  // namespace

class StoredJob::Visitor final : public metrics::FileVisitor {
 public:
  Visitor(int attempt, internal::JobTexts& texts, std::vector<Heard>& heard)
      : attempt_(attempt), texts_(texts), heard_(heard) {}

  void sample(const metrics::Sample& sample) override {
    if (sample.rank < kMostRanks && texts_.charts.add(sample)) texts_.overview.sample(sample);
  }
  void note(std::string_view key, std::string_view value) override {
    if (std::ranges::find(kNotes, key) == kNotes.end()) return;
    texts_.charts.note(key, value.substr(0, kLongestNote));
  }
  void event(std::string_view line) override {
    auto news = metrics::parse_news(line);
    if (!news || news->rank >= kMostRanks || news->rank < -1 || heard_.size() == kMostNews) return;
    texts_.overview.event(line);
    news->text.resize(std::min(news->text.size(), news->kind == Kind::kFailed ? kLongestReport : kLongestRole));
    news->host.resize(std::min(news->host.size(), kLongestRole));
    heard_.push_back({.attempt = attempt_, .news = std::move(*news)});
  }

 private:
  int attempt_;
  internal::JobTexts& texts_;
  std::vector<Heard>& heard_;
};

struct StoredJob::Opened {
  Opened(int attempt, internal::JobTexts& texts, std::vector<Heard>& heard) : visitor(attempt, texts, heard) {}

  Visitor visitor;
  std::unique_ptr<metrics::FileReader> reader;
  bool is_unreadable = false;
};

StoredJob::StoredJob(std::string name, std::unique_ptr<StoredJobFiles> files)
    : name_(std::move(name)), files_(std::move(files)) {
  const MutexLock lock(mutex_);
  forget();
}

StoredJob::~StoredJob() = default;

void StoredJob::forget() {
  opened_.clear();
  heard_.clear();
  heard_before_ = 0;
  metrics_seen_ = 0;
  texts_ = std::make_unique<internal::JobTexts>(name_, Charts::Limits{.points = kMostPoints, .lines = kMostLines});
  ++versions_.job;
  ++versions_.metrics;
}

void StoredJob::look() {
  const auto now = SteadyClock::now();
  if (looked_ && now - *looked_ < kBetweenLooks) return;
  looked_ = now;
  const StoredJobFiles::Facts facts = files_->facts();  // First: what was written before the end is in the files then.
  const std::vector<StoredJobFiles::File> files = files_->list();
  const bool was_cut = std::ranges::any_of(
      opened_, [](const auto& entry) { return entry.second->reader && entry.second->reader->was_cut(); });
  if (was_cut) forget();
  read(files);
  const bool has_ended = facts.is_over != facts_.is_over || facts.exit_code != facts_.exit_code;
  facts_ = facts;
  versions_.is_over = !(is_followed_ && read_timelines(files)) && facts.is_over;
  if (has_ended || heard_.size() != heard_before_) rebuild();
  note_logs(files);
  if (texts_->charts.version() == metrics_seen_) return;
  metrics_seen_ = texts_->charts.version();
  ++versions_.metrics;
  ++versions_.job;  // It has the latest of the numbers.
}

void StoredJob::read(const std::vector<StoredJobFiles::File>& files) {
  std::map<metrics::JobFile, std::string> in_order;
  for (const StoredJobFiles::File& file : files) {
    if (const auto place = metrics::job_file_named(file.name)) in_order[*place] = file.name;
  }
  for (const auto& [place, name] : in_order) {
    if (opened_.size() == kMostFiles && !opened_.contains(place)) continue;
    auto& opened = opened_[place];
    if (!opened) opened = std::make_unique<Opened>(place.attempt, *texts_, heard_);
    if (opened->is_unreadable) continue;
    try {
      if (!opened->reader) {
        opened->reader = std::make_unique<metrics::FileReader>(files_->open(name), name, opened->visitor);
      }
      opened->reader->read();
    } catch (const Error&) {
      opened->is_unreadable = true;  // The others are to be seen all the same.
    }
  }
}

bool StoredJob::read_timelines(const std::vector<StoredJobFiles::File>& files) {
  std::vector<metrics::JobTimelineFile> found;
  int last_attempt = 0;
  for (const StoredJobFiles::File& file : files) {
    const auto timeline = metrics::job_timeline_named(file.name);
    if (!timeline || timeline->rank >= kMostTimelines) continue;
    found.push_back(*timeline);
    last_attempt = std::max(last_attempt, timeline->attempt);
  }
  if (found.empty()) return false;
  if (!timeline_ || timeline_attempt_ != last_attempt) {
    timeline_attempt_ = last_attempt;
    const auto open = [this, pattern = metrics::name_of_timelines(last_attempt)](int rank) {
      try {
        return files_->open(file_of_rank(pattern, rank));
      } catch (const net::http::HttpError&) {
        return UniqueFd();  // It has gone meanwhile.
      }
    };
    timeline_.emplace(open, kMostSpans);
  }
  for (const metrics::JobTimelineFile& file : found) {
    if (file.attempt == last_attempt) timeline_->add_rank(file.rank);
  }
  const bool is_news = timeline_->read(kTimelineBytesOfLook);
  if (is_news) ++versions_.timeline;
  return is_news;
}

void StoredJob::rebuild() {
  heard_before_ = heard_.size();
  ++versions_.job;
  std::vector<const Heard*> all;
  for (const Heard& each : heard_) all.push_back(&each);
  // Where they lie decides among equals; Clang finds something deprecated in std::stable_sort.
  std::ranges::sort(all, {}, [](const Heard* each) { return std::tuple(each->attempt, each->news.time_us, each); });
  JobState state;
  int restarts = 0;
  bool has_failed = false;
  const auto restart = [&](const News& news) {
    state.hear({.kind = Kind::kRestarting, .code = ++restarts, .time_us = news.time_us}, 0);
    has_failed = false;
  };
  for (std::size_t i = 0; i < all.size(); ++i) {
    const News& news = all[i]->news;
    if (i > 0 && all[i - 1]->attempt != all[i]->attempt) restart(news);
    if (news.kind == Kind::kRestarting) {
      restart(news);
    } else if (news.kind == Kind::kFailed) {
      // Each node's launcher has a first failure; those of other nodes follow from the first of all.
      if (!std::exchange(has_failed, true)) state.hear(news, 0);
    } else if (news.kind == Kind::kStopping) {
      // After a failure, and of servers that nobody needs any more, it is only how things end.
      if (!has_failed && facts_.exit_code != 0) state.hear(news, 0);
    } else if (news.kind != Kind::kFinished) {  // A launcher's end is not the job's.
      state.hear(news, 0);
    }
  }
  if (facts_.is_over) {
    state.hear({.kind = Kind::kFinished, .code = facts_.exit_code.value_or(-1), .time_us = facts_.ended_us}, 0);
  }
  texts_->state = std::move(state);
}

void StoredJob::note_logs(const std::vector<StoredJobFiles::File>& files) {
  const auto find = [&files](const std::string& name) {
    return std::ranges::find(files, name, &StoredJobFiles::File::name);
  };
  const auto of_all = find("stdout.txt");
  for (const auto& [rank, role] : texts_->state.roles()) {
    auto log = find(fmt::format("stdout-{}.txt", log_name(rank, role)));
    if (log == files.end()) log = of_all;
    if (log == files.end()) continue;
    logs_[rank] = log->name;
    std::uint64_t& bytes = texts_->log_bytes[rank];
    const std::uint64_t before = std::exchange(bytes, log->bytes);
    if (before == 0 && log->bytes > 0) ++versions_.job;  // It has begun.
  }
}

JobView::Versions StoredJob::versions() {
  const MutexLock lock(mutex_);
  is_followed_ = true;
  look();
  return versions_;
}

std::shared_ptr<const std::string> StoredJob::job_json() {
  const MutexLock lock(mutex_);
  look();
  return texts_->job_json(versions_.job);
}

std::shared_ptr<const std::string> StoredJob::index_json() {
  const MutexLock lock(mutex_);
  look();
  return texts_->index_json(versions_.metrics);
}

std::shared_ptr<const std::string> StoredJob::chart_json(const std::string& name, const ChartRange& range) {
  const MutexLock lock(mutex_);
  look();
  return texts_->chart_json(name, range, versions_.metrics);
}

std::string StoredJob::timeline_json(std::optional<std::int64_t> from_us, std::optional<std::int64_t> to_us) {
  const MutexLock lock(mutex_);
  is_followed_ = true;
  look();
  return timeline_ ? timeline_->json(from_us, to_us) : JobView::timeline_json(from_us, to_us);
}

std::string StoredJob::prometheus_text() {
  const MutexLock lock(mutex_);
  look();
  return metrics::prometheus_text(texts_->charts.latest());
}

std::map<int, std::string> StoredJob::log_names() {
  const MutexLock lock(mutex_);
  look();
  return logs_;
}

std::map<int, std::uint64_t> StoredJob::log_sizes() {
  const MutexLock lock(mutex_);
  return texts_->log_bytes;
}

UniqueFd StoredJob::open_log(int rank) {
  std::string name;
  {
    const MutexLock lock(mutex_);
    look();
    const auto found = logs_.find(rank);
    if (found == logs_.end()) {
      throw net::http::HttpError(404, "LogNotFound", fmt::format("rank {} has no log", rank), std::to_string(rank));
    }
    name = found->second;
  }
  return files_->open(name);
}

}  // namespace gyre::page
