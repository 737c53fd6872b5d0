#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "gyre/metrics/file.h"
#include "gyre/metrics/series.h"

namespace gyre::page {

/// Of what a chart shows: all, or what lies in a range of its axis.
struct ChartRange {
  bool over_time = false;  ///< `from` and `to` are seconds since 1970; else steps.
  double from = -std::numeric_limits<double>::infinity();
  double to = std::numeric_limits<double>::infinity();
};

/// The metrics of one run that may go on, and of earlier ones that it is compared with, all in memory: 24 bytes a
/// sample, of which a file has at most twenty million. Not thread-safe.
class Charts : public metrics::FileVisitor {
 public:
  /// Of one line: a chart has not many more columns.
  static constexpr std::size_t kMostPoints = 2'000;
  /// Of all lines of a chart, unless each would have fewer than kFewestPoints.
  static constexpr std::size_t kMostPointsOfChart = 16'000;
  static constexpr std::size_t kFewestPoints = 100;

  void sample(const metrics::Sample& sample) override;
  void note(std::string_view key, std::string_view value) override;
  /// Another run, which does not change any more.
  void compare_with(std::string name, metrics::Run run);

  /// Grows with every sample and note.
  std::uint64_t version() const { return version_; }
  /// {"runs": [{"name", "notes"}], "charts": [{"name", "lines"}]}. The run that goes on comes first; `name`: its.
  std::string index_json(const std::string& name) const;
  /// {"name", "lines": [{"run", "rank", "step": […], "time": […], "value": […], "count"}]}: of each line kMostPoints at
  /// most that look the same (metrics::downsample), and one beyond each end of the range. `time` in seconds since 1970;
  /// `count`: how many points the range has.
  std::string chart_json(const std::string& name, const ChartRange& range) const;

 private:
  using Lines = std::map<int, std::vector<metrics::Point>>;  // By rank.

  struct ComparedRun {
    std::string name;
    std::map<std::string, std::string> notes;
    std::map<std::string, Lines, std::less<>> charts;
  };

  std::vector<const Lines*> lines_of(const std::string& name) const;

  ComparedRun own_;
  std::vector<ComparedRun> others_;
  std::uint64_t version_ = 0;
};

}  // namespace gyre::page
