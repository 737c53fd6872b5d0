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
#include "gyre/metrics/overview.h"
#include "gyre/page/job_state.h"
#include "gyre/page/job_view.h"

namespace gyre::page::internal {

/// The job of one `gyre run`: the launcher's news, its file of metrics and its folder of logs. One thread feeds it,
/// any number look at it.
class RunView : public JobView {
 public:
  /// `others`: earlier runs to compare with, and their names.
  RunView(std::string name, std::filesystem::path metrics, std::filesystem::path logs,
          std::vector<std::pair<std::string, metrics::Run>> others);
  ~RunView() override;

  void hear(const News& news) GYRE_EXCLUDES(mutex_);
  /// Reads what the files have got since the last call.
  void look() GYRE_EXCLUDES(mutex_);
  /// Nothing changes any more: ends the streams of those who look.
  void end() GYRE_EXCLUDES(mutex_);
  int viewers() const GYRE_EXCLUDES(mutex_);

  Versions versions() override;
  std::shared_ptr<const std::string> job_json() override;
  std::shared_ptr<const std::string> index_json() override;
  std::shared_ptr<const std::string> chart_json(const std::string& name, const ChartRange& range) override;
  std::map<int, std::uint64_t> log_sizes() override;
  UniqueFd open_log(int rank) override;
  void viewer_came() override;
  void viewer_left() override;

 private:
  /// Passes samples and notes on to both who want them.
  class Visitor;
  /// A text for all who ask, made again when there is news.
  struct Kept {
    std::uint64_t version = 0;
    std::shared_ptr<const std::string> text;
  };

  std::filesystem::path log_of(int rank) const;
  std::uint64_t size_of_log(int rank) const;

  const std::string name_;
  const std::filesystem::path metrics_file_;
  const std::filesystem::path logs_;
  mutable Mutex mutex_;
  JobState state_ GYRE_GUARDED_BY(mutex_);
  metrics::Overview overview_ GYRE_GUARDED_BY(mutex_);
  Charts charts_ GYRE_GUARDED_BY(mutex_);
  std::unique_ptr<Visitor> visitor_ GYRE_GUARDED_BY(mutex_);
  std::unique_ptr<metrics::FileReader> reader_ GYRE_GUARDED_BY(mutex_);
  bool metrics_are_unreadable_ GYRE_GUARDED_BY(mutex_) = false;
  std::map<int, std::uint64_t> log_bytes_ GYRE_GUARDED_BY(mutex_);
  Versions versions_ GYRE_GUARDED_BY(mutex_);
  std::uint64_t metrics_seen_ GYRE_GUARDED_BY(mutex_) = 0;
  SteadyClock::time_point metrics_told_ GYRE_GUARDED_BY(mutex_);
  Kept job_ GYRE_GUARDED_BY(mutex_);
  Kept index_ GYRE_GUARDED_BY(mutex_);
  std::map<std::string, Kept> kept_charts_ GYRE_GUARDED_BY(mutex_);
  int viewers_ GYRE_GUARDED_BY(mutex_) = 0;
};

}  // namespace gyre::page::internal
