#include "gyre/page/internal/run_view.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "gyre/base/error.h"
#include "gyre/net/http/error.h"

namespace gyre::page::internal {

namespace {

/// Numbers that change with every step are told this often.
constexpr std::chrono::milliseconds kBetweenTellings{1'000};
constexpr std::size_t kMostKeptCharts = 256;

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

 private:
  metrics::FileVisitor& first_;
  metrics::FileVisitor& second_;
};

RunView::RunView(std::string name, std::filesystem::path metrics, std::filesystem::path logs,
                 std::vector<std::pair<std::string, metrics::Run>> others)
    : name_(std::move(name)),
      metrics_file_(std::move(metrics)),
      logs_(std::move(logs)),
      visitor_(std::make_unique<Visitor>(overview_, charts_)) {
  for (auto& [other, run] : others) charts_.compare_with(std::move(other), std::move(run));
  versions_.job = 1;
  versions_.metrics = 1;
}

RunView::~RunView() = default;

std::filesystem::path RunView::log_of(int rank) const { return logs_ / fmt::format("rank-{}.log", rank); }

void RunView::hear(const News& news) {
  const MutexLock lock(mutex_);
  const std::uint64_t bytes = news.rank < 0 ? 0 : size_of_log(news.rank);
  if (news.rank >= 0) log_bytes_[news.rank] = bytes;
  state_.hear(news, bytes);
  ++versions_.job;
}

std::uint64_t RunView::size_of_log(int rank) const {
  struct stat status{};
  return ::stat(log_of(rank).c_str(), &status) == 0 ? static_cast<std::uint64_t>(status.st_size) : 0;
}

void RunView::look() {
  const MutexLock lock(mutex_);
  for (auto& [rank, bytes] : log_bytes_) {
    const std::uint64_t before = std::exchange(bytes, size_of_log(rank));
    if (before == 0 && bytes > 0) ++versions_.job;  // It has begun.
  }
  if (metrics_are_unreadable_ || state_.ranks().empty()) return;  // Until then an earlier job's file may lie there.
  try {
    if (!reader_) reader_ = std::make_unique<metrics::FileReader>(metrics_file_, *visitor_);
    reader_->read();
  } catch (const Error&) {
    metrics_are_unreadable_ = true;  // The launcher has said why; logs and ranks are still to be seen.
  }
  const auto now = SteadyClock::now();
  if (charts_.version() == metrics_seen_ || (now - metrics_told_ < kBetweenTellings && !state_.is_over())) return;
  metrics_seen_ = charts_.version();
  metrics_told_ = now;
  ++versions_.metrics;
  ++versions_.job;  // It has the latest of the numbers.
}

void RunView::end() {
  look();
  const MutexLock lock(mutex_);
  versions_.is_over = true;
}

int RunView::viewers() const {
  const MutexLock lock(mutex_);
  return viewers_;
}

void RunView::viewer_came() {
  const MutexLock lock(mutex_);
  ++viewers_;
}

void RunView::viewer_left() {
  const MutexLock lock(mutex_);
  --viewers_;
}

JobView::Versions RunView::versions() {
  const MutexLock lock(mutex_);
  return versions_;
}

std::shared_ptr<const std::string> RunView::job_json() {
  const MutexLock lock(mutex_);
  if (!job_.text || job_.version != versions_.job) {
    job_ = {.version = versions_.job,
            .text = std::make_shared<const std::string>(state_.json(name_, overview_, log_bytes_))};
  }
  return job_.text;
}

std::shared_ptr<const std::string> RunView::index_json() {
  const MutexLock lock(mutex_);
  if (!index_.text || index_.version != versions_.metrics) {
    index_ = {.version = versions_.metrics, .text = std::make_shared<const std::string>(charts_.index_json(name_))};
  }
  return index_.text;
}

std::shared_ptr<const std::string> RunView::chart_json(const std::string& name, const ChartRange& range) {
  const MutexLock lock(mutex_);
  const bool is_whole = std::isinf(range.from) && std::isinf(range.to);
  if (!is_whole) return std::make_shared<const std::string>(charts_.chart_json(name, range));
  if (kept_charts_.size() > kMostKeptCharts) kept_charts_.clear();
  Kept& kept = kept_charts_[name];
  if (!kept.text || kept.version != versions_.metrics) {
    kept = {.version = versions_.metrics, .text = std::make_shared<const std::string>(charts_.chart_json(name, range))};
  }
  return kept.text;
}

std::map<int, std::uint64_t> RunView::log_sizes() {
  const MutexLock lock(mutex_);
  return log_bytes_;
}

UniqueFd RunView::open_log(int rank) {
  UniqueFd file(::open(log_of(rank).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file) {
    throw net::http::HttpError(404, "LogNotFound", fmt::format("rank {} has no log here", rank), std::to_string(rank));
  }
  return file;
}

}  // namespace gyre::page::internal
