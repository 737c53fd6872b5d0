#include "gyre/page/internal/run_view.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "gyre/base/error.h"
#include "gyre/metrics/prometheus.h"
#include "gyre/net/http/error.h"

namespace gyre::page::internal {

namespace {

/// Numbers that change with every step are told this often.
constexpr std::chrono::milliseconds kBetweenTellings{1'000};
/// Between a browser's fetching the page and its following the job.
constexpr std::chrono::milliseconds kLongestOpening{2'000};

}  // namespace

class RunView::Visitor : public metrics::FileVisitor {
 public:
  Visitor(metrics::FileVisitor& first, metrics::FileVisitor& second) : first_(first), second_(second) {}

  void sample(const metrics::Sample& sample) override {
    first_.sample(sample);
    second_.sample(sample);
  }
  void note(std::string_view key, std::string_view value) override {
    first_.note(key, value);
    second_.note(key, value);
  }
  void event(std::string_view line) override {
    first_.event(line);
    second_.event(line);
    has_event_ = true;
  }
  /// Since it was asked last.
  bool takes_event() { return std::exchange(has_event_, false); }

 private:
  metrics::FileVisitor& first_;
  metrics::FileVisitor& second_;
  bool has_event_ = false;
};

RunView::RunView(std::string name, std::filesystem::path metrics, std::filesystem::path logs,
                 std::vector<std::pair<std::string, metrics::Run>> others, std::filesystem::path timeline)
    : metrics_file_(std::move(metrics)),
      logs_(std::move(logs)),
      job_(std::move(name), Charts::Limits{}),
      visitor_(std::make_unique<Visitor>(job_.overview, job_.charts)) {
  for (auto& [other, run] : others) job_.charts.compare_with(std::move(other), std::move(run));
  if (!timeline.empty()) timeline_.emplace(std::move(timeline));
  versions_.job = 1;
  versions_.metrics = 1;
}

RunView::~RunView() = default;

std::filesystem::path RunView::log_of(int rank) const { return logs_ / fmt::format("rank-{}.log", rank); }

void RunView::hear(const News& news) {
  const MutexLock lock(mutex_);
  const std::uint64_t bytes = news.rank < 0 ? 0 : size_of_log(news.rank);
  if (news.rank >= 0) job_.log_bytes[news.rank] = bytes;
  job_.state.hear(news, bytes);
  ++versions_.job;
  if (job_.state.is_over()) read_files();  // Who hears of the end fetches the last of them.
}

std::uint64_t RunView::size_of_log(int rank) const {
  struct stat status{};
  return ::stat(log_of(rank).c_str(), &status) == 0 ? static_cast<std::uint64_t>(status.st_size) : 0;
}

void RunView::look() {
  const MutexLock lock(mutex_);
  read_files();
}

void RunView::read_files() {
  for (auto& [rank, bytes] : job_.log_bytes) {
    const std::uint64_t before = std::exchange(bytes, size_of_log(rank));
    if (before == 0 && bytes > 0) ++versions_.job;  // It has begun.
  }
  read_timeline();
  if (metrics_are_unreadable_ || job_.state.ranks().empty()) return;  // Until then an earlier job's file may lie there.
  try {
    if (!reader_) reader_ = std::make_unique<metrics::FileReader>(metrics_file_, *visitor_);
    reader_->read();
    if (visitor_->takes_event()) ++versions_.job;  // A rank that starts again has no numbers.
  } catch (const Error&) {
    metrics_are_unreadable_ = true;  // The launcher has said why; logs and ranks are still to be seen.
  }
  const auto now = SteadyClock::now();
  if (job_.charts.version() == metrics_seen_ || (now - metrics_told_ < kBetweenTellings && !job_.state.is_over()))
    return;
  metrics_seen_ = job_.charts.version();
  metrics_told_ = now;
  ++versions_.metrics;
  ++versions_.job;  // It has the latest of the numbers.
}

void RunView::read_timeline() {
  if (!timeline_) return;
  for (const int rank : job_.state.ranks()) timeline_->add_rank(rank);
  const bool is_last = job_.state.is_over();
  // The last of it without a bound: there is no later look.
  while (timeline_->read()) {
    timeline_is_new_ = true;
    if (!is_last) break;
  }
  const auto now = SteadyClock::now();
  if (!timeline_is_new_ || (now - timeline_told_ < kBetweenTellings && !is_last)) return;
  timeline_is_new_ = false;
  timeline_told_ = now;
  ++versions_.timeline;
}

void RunView::end() {
  look();
  const MutexLock lock(mutex_);
  versions_.is_over = true;
}

void RunView::close() {
  const MutexLock lock(mutex_);
  versions_.is_closed = true;
}

void RunView::opened() {
  const MutexLock lock(mutex_);
  opened_ = SteadyClock::now();
}

bool RunView::is_watched() const {
  const MutexLock lock(mutex_);
  return viewers_ > 0 || (opened_ && SteadyClock::now() - *opened_ < kLongestOpening);
}

void RunView::viewer_came() {
  const MutexLock lock(mutex_);
  ++viewers_;
  opened_.reset();
}

void RunView::viewer_left() {
  const MutexLock lock(mutex_);
  --viewers_;
}

void RunView::asked() { opened(); }

JobView::Versions RunView::versions() {
  const MutexLock lock(mutex_);
  return versions_;
}

std::shared_ptr<const std::string> RunView::job_json() {
  const MutexLock lock(mutex_);
  return job_.job_json(versions_.job);
}

std::shared_ptr<const std::string> RunView::index_json() {
  const MutexLock lock(mutex_);
  return job_.index_json(versions_.metrics);
}

std::shared_ptr<const std::string> RunView::chart_json(const std::string& name, const ChartRange& range) {
  const MutexLock lock(mutex_);
  return job_.chart_json(name, range, versions_.metrics);
}

std::string RunView::timeline_json(std::optional<std::int64_t> from_us, std::optional<std::int64_t> to_us) {
  const MutexLock lock(mutex_);
  return timeline_ ? timeline_->json(from_us, to_us) : JobView::timeline_json(from_us, to_us);
}

std::string RunView::prometheus_text() {
  const MutexLock lock(mutex_);
  return metrics::prometheus_text(job_.charts.latest());
}

std::map<int, std::uint64_t> RunView::log_sizes() {
  const MutexLock lock(mutex_);
  return job_.log_bytes;
}

UniqueFd RunView::open_log(int rank) {
  UniqueFd file(::open(log_of(rank).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file) {
    throw net::http::HttpError(404, "LogNotFound", fmt::format("rank {} has no log here", rank), std::to_string(rank));
  }
  return file;
}

}  // namespace gyre::page::internal
