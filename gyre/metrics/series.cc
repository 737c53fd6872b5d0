#include "gyre/metrics/series.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <string_view>

#include "gyre/base/check.h"
#include "gyre/metrics/file.h"

namespace gyre::metrics {
namespace {

class Loader : public FileVisitor {
 public:
  explicit Loader(Run& run) : run_(run) {}

  void sample(const Sample& sample) override {
    run_.series[{std::string(sample.name), sample.rank}].push_back({sample.step, sample.time_us, sample.value});
  }
  void note(std::string_view key, std::string_view value) override { run_.notes[std::string(key)] = value; }

 private:
  Run& run_;
};

/// Of one range of steps: positions in the series.
struct Extremes {
  std::optional<std::size_t> lowest;
  std::optional<std::size_t> highest;
  std::optional<std::size_t> not_finite;
};

/// Of the points that downsample() keeps.
std::set<std::size_t> kept_positions(std::span<const Point> points, std::size_t most) {
  const auto [first, last] = std::ranges::minmax_element(points, {}, &Point::step);
  // Unsigned, because the difference of two steps may have 65 bits with its sign.
  const auto begin = static_cast<std::uint64_t>(first->step);
  const std::uint64_t width = static_cast<std::uint64_t>(last->step) - begin;
  const bool all_finite = std::ranges::all_of(points, [](const Point& point) { return std::isfinite(point.value); });
  std::vector<Extremes> ranges((most - 1) / (all_finite ? 2 : 3));
  const double per_step = static_cast<double>(ranges.size()) / (static_cast<double>(width) + 1);
  for (std::size_t i = 0; i < points.size(); ++i) {
    const double place = static_cast<double>(static_cast<std::uint64_t>(points[i].step) - begin) * per_step;
    Extremes& range = ranges[std::min(static_cast<std::size_t>(place), ranges.size() - 1)];
    if (!std::isfinite(points[i].value)) {
      range.not_finite = i;
      continue;
    }
    if (!range.lowest || points[i].value < points[*range.lowest].value) range.lowest = i;
    if (!range.highest || points[i].value > points[*range.highest].value) range.highest = i;
  }
  std::set<std::size_t> kept = {points.size() - 1};
  for (const Extremes& range : ranges) {
    for (const std::optional<std::size_t>& one : {range.lowest, range.highest, range.not_finite}) {
      if (one) kept.insert(*one);
    }
  }
  return kept;
}

}  // namespace

Run load_run(const std::filesystem::path& path) {
  Run run;
  Loader loader(run);
  FileReader reader(path, loader);
  run.is_under_way = reader.is_written();  // First: nothing is written after this was false.
  run.unreadable_bytes = reader.read();
  return run;
}

std::string end_of(const Run& run) {
  const auto code = run.notes.find("exit_code");
  return end_of(code == run.notes.end() ? nullptr : &code->second, run.is_under_way);
}

std::string end_of(const std::string* exit_code, bool is_under_way) {
  if (exit_code != nullptr) return "ended with exit code " + *exit_code;
  return is_under_way ? "under way" : "cut off: `gyre run` was killed, or its disk was full";
}

std::vector<SelectedPoint> select_points(std::span<const Point> points, std::size_t most) {
  GYRE_CHECK(most >= 4U);
  const bool are_few = points.size() <= most;
  const std::set<std::size_t> kept = are_few ? std::set<std::size_t>() : kept_positions(points, most);
  std::vector<SelectedPoint> selected;
  double mean = 0;
  std::size_t count = 0;
  for (std::size_t i = 0; i < points.size(); ++i) {
    // Not a sum, which could be more than a double holds.
    if (std::isfinite(points[i].value)) {
      ++count;
      mean += points[i].value / static_cast<double>(count) - mean / static_cast<double>(count);
    }
    if (!are_few && !kept.contains(i)) continue;
    selected.push_back({.point = points[i], .count = count, .mean = count == 0 ? std::nan("") : mean});
    mean = 0;
    count = 0;
  }
  return selected;
}

std::vector<Point> downsample(std::span<const Point> points, std::size_t most) {
  GYRE_CHECK(most >= 4U);
  if (points.size() <= most) return {points.begin(), points.end()};
  std::vector<Point> result;
  for (const std::size_t i : kept_positions(points, most)) result.push_back(points[i]);
  return result;
}

}  // namespace gyre::metrics
