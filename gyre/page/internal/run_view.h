#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gyre/base/clock.h"
#include "gyre/base/thread_annotations.h"
#include "gyre/page/internal/job_texts.h"
#include "gyre/page/job_view.h"
#include "gyre/page/rank_timeline.h"

namespace gyre::page::internal {

/// The job of one `gyre run`: the launcher's news, its file of metrics and its folder of logs. One thread feeds it,
/// any number look at it.
class RunView : public JobView {
 public:
  /// `others`: earlier runs to compare with, and their names. `timeline`: of each rank; empty: none.
  RunView(std::string name, std::filesystem::path metrics, std::filesystem::path logs,
          std::vector<std::pair<std::string, metrics::Run>> others, std::filesystem::path timeline);
  ~RunView() override;

  void hear(const News& news) GYRE_EXCLUDES(mutex_);
  /// Reads what the files have got since the last call.
  void look() GYRE_EXCLUDES(mutex_);
  /// Nothing changes any more.
  void end() GYRE_EXCLUDES(mutex_);
  /// Ends the streams of those who look.
  void close() GYRE_EXCLUDES(mutex_);
  /// A browser has fetched the page, and may follow the job soon, or ask again.
  void opened() GYRE_EXCLUDES(mutex_);
  /// Whether somebody follows the job, or has just opened the page or asked.
  bool is_watched() const GYRE_EXCLUDES(mutex_);

  Versions versions() override;
  std::shared_ptr<const std::string> job_json() override;
  std::shared_ptr<const std::string> index_json() override;
  std::shared_ptr<const std::string> chart_json(const std::string& name, const ChartRange& range) override;
  std::string timeline_json(std::optional<std::int64_t> from_us, std::optional<std::int64_t> to_us) override;
  std::string prometheus_text() override;
  std::map<int, std::uint64_t> log_sizes() override;
  UniqueFd open_log(int rank) override;
  void viewer_came() override;
  void viewer_left() override;
  void asked() override;

 private:
  /// Passes samples and notes on to both who want them.
  class Visitor;
  std::filesystem::path log_of(int rank) const;
  std::uint64_t size_of_log(int rank) const;
  void read_files() GYRE_REQUIRES(mutex_);
  void read_timeline() GYRE_REQUIRES(mutex_);

  const std::filesystem::path metrics_file_;
  const std::filesystem::path logs_;
  mutable Mutex mutex_;
  JobTexts job_ GYRE_GUARDED_BY(mutex_);
  std::unique_ptr<Visitor> visitor_ GYRE_GUARDED_BY(mutex_);
  std::unique_ptr<metrics::FileReader> reader_ GYRE_GUARDED_BY(mutex_);
  bool metrics_are_unreadable_ GYRE_GUARDED_BY(mutex_) = false;
  Versions versions_ GYRE_GUARDED_BY(mutex_);
  std::uint64_t metrics_seen_ GYRE_GUARDED_BY(mutex_) = 0;
  SteadyClock::time_point metrics_told_ GYRE_GUARDED_BY(mutex_);
  std::optional<JobTimeline> timeline_ GYRE_GUARDED_BY(mutex_);
  SteadyClock::time_point timeline_told_ GYRE_GUARDED_BY(mutex_);
  bool timeline_is_new_ GYRE_GUARDED_BY(mutex_) = false;
  int viewers_ GYRE_GUARDED_BY(mutex_) = 0;
  std::optional<SteadyClock::time_point> opened_ GYRE_GUARDED_BY(mutex_);
};

}  // namespace gyre::page::internal
