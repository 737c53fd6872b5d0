#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "gyre/base/file.h"
#include "gyre/page/charts.h"

namespace gyre::page {

/// What the page shows of one job, wherever its facts come from. Thread-safe; nothing waits for the job. The routes
/// (routes.h) serve it.
class JobView {
 public:
  /// What has changed is what has another number than before.
  struct Versions {
    std::uint64_t job = 0;       ///< Of job_json().
    std::uint64_t metrics = 0;   ///< Of index_json() and chart_json().
    std::uint64_t timeline = 0;  ///< Of timeline_json(); 0: there is none.
    bool is_over = false;        ///< Nothing changes any more.
    bool is_closed = false;      ///< It can soon not be asked any more: streams end.
  };

  virtual ~JobView() = default;
  virtual Versions versions() = 0;
  /// {"name", "state", …}: JobState::json() with "name", and "host".
  virtual std::shared_ptr<const std::string> job_json() = 0;
  /// As Charts.
  virtual std::shared_ptr<const std::string> index_json() = 0;
  virtual std::shared_ptr<const std::string> chart_json(const std::string& name, const ChartRange& range) = 0;
  /// As JobTimeline. HttpError(404) without one.
  virtual std::string timeline_json(std::optional<std::int64_t> from_us, std::optional<std::int64_t> to_us);
  /// The latest values, in Prometheus's text format.
  virtual std::string prometheus_text() = 0;
  /// By rank: how many bytes its log has.
  virtual std::map<int, std::uint64_t> log_sizes() = 0;
  /// Of those of log_sizes() that may be one for several ranks: their names.
  virtual std::map<int, std::string> log_names() { return {}; }
  /// net::http::HttpError(404) without one.
  virtual UniqueFd open_log(int rank) = 0;
  /// How many streams follow the job.
  virtual void viewer_came() {}
  virtual void viewer_left() {}
  /// Somebody asks now, and will again, in place of following the job.
  virtual void asked() {}
};

}  // namespace gyre::page
