#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace gyre::metrics {

struct Point {
  std::int64_t step = 0;
  std::int64_t time_us = 0;
  double value = 0;
};

/// What one rank has logged under one name.
struct SeriesKey {
  std::string name;
  int rank = 0;
  auto operator<=>(const SeriesKey&) const = default;
};

/// A whole file.
struct Run {
  std::map<std::string, std::string> notes;
  std::map<SeriesKey, std::vector<Point>> series;  ///< Each in the order in which it was logged.
  std::uint64_t unreadable_bytes = 0;              ///< Behind the first block that is cut or damaged.
  bool is_under_way = false;                       ///< Somebody still writes the file.
};

/// "ended with exit code 0", or what else became of a run, for people.
std::string end_of(const Run& run);
std::string end_of(const std::string* exit_code, bool is_under_way);

/// Errors as read_metrics().
Run load_run(const std::filesystem::path& path);

/// By position: whether a later point has the same step or an earlier one. A job that goes on from a checkpoint does
/// steps again; over steps, a chart shows those that it has done last, and none that it has still to do again.
std::vector<bool> superseded_points(std::span<const Point> points);

/// At most `most` (4 or more) of the points, in their order, that look the same in a chart over steps: of each of some
/// ranges of steps, equally wide, the lowest and the highest finite value, and one that is not finite where there is
/// one; and the last point. Where steps go back, superseded points are chosen apart from the others, and with each of
/// them comes the point that supersedes it; where they go back too often for that, superseded points are left out. All
/// points where they are few enough.
std::vector<Point> downsample(std::span<const Point> points, std::size_t most);

/// One of these points, with those before it that were left out. The lowest and the highest values say nothing of what
/// is usual; whoever smooths a chart needs their mean.
struct SelectedPoint {
  Point point;
  /// How many finite values: its own, and those back to the selected point before; superseded ones apart from others.
  std::size_t count = 1;
  double mean = 0;  ///< Of these; NaN where there are none.
};
std::vector<SelectedPoint> select_points(std::span<const Point> points, std::size_t most);

}  // namespace gyre::metrics
