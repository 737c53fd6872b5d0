#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gyre/base/clock.h"
#include "gyre/base/file.h"
#include "gyre/base/thread_annotations.h"
#include "gyre/metrics/job_file.h"
#include "gyre/metrics/news.h"
#include "gyre/page/job_view.h"
#include "gyre/page/rank_timeline.h"

namespace gyre::page {

namespace internal {
class JobTexts;
}

/// The folder of logs of a job of the job server, in which its metrics and timelines lie as well (metrics/job_file.h).
class StoredJobFiles {
 public:
  struct File {
    std::string name;
    std::uint64_t bytes = 0;
  };
  struct Facts {
    bool is_over = false;            ///< Nothing writes into the folder any more.
    std::optional<int> exit_code{};  ///< Once it is over; nothing where there is none.
    std::int64_t ended_us = 0;       ///< Since 1970.
  };

  virtual ~StoredJobFiles() = default;
  virtual Facts facts() = 0;
  /// Empty where there is no folder yet.
  virtual std::vector<File> list() = 0;
  /// net::http::HttpError where it cannot be read.
  virtual UniqueFd open(const std::string& name) = 0;
};

/// Such a job, as a page shows it. Its files are written by the job, so nothing in them is believed, and what is kept
/// of them has limits: of a job with more than kMostPoints values the charts become coarser, as timelines do with more
/// than kMostSpans. Looks into the folder when it is asked, twice a second at most. Of timelines, those of the last
/// attempt are read, a part with each look, once somebody asks what is new.
class StoredJob final : public JobView {
 public:
  static constexpr std::size_t kMostPoints = 1'000'000;
  static constexpr std::size_t kMostLines = 50'000;
  static constexpr int kMostRanks = 16'384;
  static constexpr std::size_t kMostFiles = 256;
  static constexpr std::size_t kMostNews = 50'000;
  static constexpr std::size_t kMostSpans = 500'000;
  static constexpr int kMostTimelines = 1'024;

  StoredJob(std::string name, std::unique_ptr<StoredJobFiles> files);
  ~StoredJob() override;

  Versions versions() override GYRE_EXCLUDES(mutex_);
  std::shared_ptr<const std::string> job_json() override GYRE_EXCLUDES(mutex_);
  std::shared_ptr<const std::string> index_json() override GYRE_EXCLUDES(mutex_);
  std::shared_ptr<const std::string> chart_json(const std::string& name, const ChartRange& range) override
      GYRE_EXCLUDES(mutex_);
  std::string timeline_json(std::optional<std::int64_t> from_us, std::optional<std::int64_t> to_us) override
      GYRE_EXCLUDES(mutex_);
  std::string prometheus_text() override GYRE_EXCLUDES(mutex_);
  std::map<int, std::uint64_t> log_sizes() override GYRE_EXCLUDES(mutex_);
  std::map<int, std::string> log_names() override GYRE_EXCLUDES(mutex_);
  /// Of a rank that a job's nodes have started themselves: its stdout. Of one that `gyre run` has: that of all.
  UniqueFd open_log(int rank) override GYRE_EXCLUDES(mutex_);

 private:
  class Visitor;
  struct Opened;
  struct Heard {
    int attempt = 0;
    metrics::News news;
  };

  void look() GYRE_REQUIRES(mutex_);
  void read(const std::vector<StoredJobFiles::File>& files) GYRE_REQUIRES(mutex_);
  /// Whether there may be more of them.
  bool read_timelines(const std::vector<StoredJobFiles::File>& files) GYRE_REQUIRES(mutex_);
  void forget() GYRE_REQUIRES(mutex_);
  /// From all that was heard: news of several nodes come in no order.
  void rebuild() GYRE_REQUIRES(mutex_);
  void note_logs(const std::vector<StoredJobFiles::File>& files) GYRE_REQUIRES(mutex_);

  const std::string name_;
  const std::unique_ptr<StoredJobFiles> files_;
  Mutex mutex_;
  std::unique_ptr<internal::JobTexts> texts_ GYRE_GUARDED_BY(mutex_);
  std::map<metrics::JobFile, std::unique_ptr<Opened>> opened_ GYRE_GUARDED_BY(mutex_);
  std::vector<Heard> heard_ GYRE_GUARDED_BY(mutex_);
  std::optional<JobTimeline> timeline_ GYRE_GUARDED_BY(mutex_);
  int timeline_attempt_ GYRE_GUARDED_BY(mutex_) = 0;
  bool is_followed_ GYRE_GUARDED_BY(mutex_) = false;
  StoredJobFiles::Facts facts_ GYRE_GUARDED_BY(mutex_);
  std::map<int, std::string> logs_ GYRE_GUARDED_BY(mutex_);  ///< Names, by rank.
  Versions versions_ GYRE_GUARDED_BY(mutex_);
  std::size_t heard_before_ GYRE_GUARDED_BY(mutex_) = 0;
  std::uint64_t metrics_seen_ GYRE_GUARDED_BY(mutex_) = 0;
  std::optional<SteadyClock::time_point> looked_ GYRE_GUARDED_BY(mutex_);
};

}  // namespace gyre::page
