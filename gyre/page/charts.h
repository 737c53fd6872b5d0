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
/// sample, of which a file has at most twenty million, unless there are Limits. Not thread-safe.
class Charts : public metrics::FileVisitor {
 public:
  /// Of one line: a chart has not many more columns.
  static constexpr std::size_t kMostPoints = 2'000;
  /// Of all lines of a chart, unless each would have fewer than kFewestPoints.
  static constexpr std::size_t kMostPointsOfChart = 16'000;
  static constexpr std::size_t kFewestPoints = 100;

  struct Limits {
    /// In memory. With more, those of each line become half as many that look the same.
    std::size_t points = std::numeric_limits<std::size_t>::max();
    std::size_t lines = std::numeric_limits<std::size_t>::max();  ///< Of all charts; what is beyond is left out.
  };
  Charts() = default;
  explicit Charts(const Limits& limits) : limits_(limits) {}

  void sample(const metrics::Sample& sample) override { static_cast<void>(add(sample)); }
  /// False where its line is one too many.
  bool add(const metrics::Sample& sample);
  void note(std::string_view key, std::string_view value) override;
  /// Another run, which does not change any more.
  void compare_with(std::string name, metrics::Run run);

  /// Of the run that goes on: the last point of each line.
  metrics::Run latest() const;
  /// Grows with every sample and note.
  std::uint64_t version() const { return version_; }
  /// {"runs": [{"name", "notes", "end"}], "charts": [{"name", "lines"}]}. The run that goes on comes first; `name`:
  /// its.
  std::string index_json(const std::string& name) const;
  /// {"name", "lines": [{"run", "rank", "step": […], "time": […], "value": […], "count"}]}: of each line kMostPoints at
  /// most that look the same (metrics::downsample), and one beyond each end of the range. `time` in seconds since 1970;
  /// `count`: how many points the range has. Where these are a selection, also "weight" and "mean" of each
  /// (metrics::SelectedPoint; null for no number).
  std::string chart_json(const std::string& name, const ChartRange& range) const;

 private:
  using Lines = std::map<int, std::vector<metrics::Point>>;  // By rank.

  struct ComparedRun {
    std::string name;
    std::map<std::string, std::string> notes;
    std::string end;  ///< For people; empty: of a run that goes on.
    std::map<std::string, Lines, std::less<>> charts;
  };

  void thin_out();
  std::vector<const Lines*> lines_of(const std::string& name) const;

  Limits limits_{};
  std::size_t points_ = 0;  ///< Of our own run, as the next is.
  std::size_t lines_ = 0;
  ComparedRun own_;
  std::vector<ComparedRun> others_;
  std::uint64_t version_ = 0;
};

}  // namespace gyre::page
