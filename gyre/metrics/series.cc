#include "gyre/metrics/series.h"

#include <algorithm>
#include <cmath>
#include <limits>
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

/// Those that downsample() keeps.
struct Kept {
  std::set<std::size_t> positions;
  bool without_superseded = false;
};

/// Of `chosen`, positions in the series, `most` at most.
void keep_extremes(std::span<const Point> points, std::span<const std::size_t> chosen, std::size_t most,
                   std::set<std::size_t>& kept) {
  if (chosen.size() <= most) return kept.insert(chosen.begin(), chosen.end());
  const auto step_at = [points](std::size_t i) { return points[i].step; };
  const auto [first, last] = std::ranges::minmax_element(chosen, {}, step_at);
  // Unsigned, because the difference of two steps may have 65 bits with its sign.
  const auto begin = static_cast<std::uint64_t>(step_at(*first));
  const std::uint64_t width = static_cast<std::uint64_t>(step_at(*last)) - begin;
  const bool all_finite = std::ranges::all_of(chosen, [&](std::size_t i) { return std::isfinite(points[i].value); });
  std::vector<Extremes> ranges((most - 1) / (all_finite ? 2 : 3));
  const double per_step = static_cast<double>(ranges.size()) / (static_cast<double>(width) + 1);
  for (const std::size_t i : chosen) {
    const double place = static_cast<double>(static_cast<std::uint64_t>(points[i].step) - begin) * per_step;
    Extremes& range = ranges[std::min(static_cast<std::size_t>(place), ranges.size() - 1)];
    if (!std::isfinite(points[i].value)) {
      range.not_finite = i;
      continue;
    }
    if (!range.lowest || points[i].value < points[*range.lowest].value) range.lowest = i;
    if (!range.highest || points[i].value > points[*range.highest].value) range.highest = i;
  }
  kept.insert(chosen.back());
  for (const Extremes& range : ranges) {
    for (const std::optional<std::size_t>& one : {range.lowest, range.highest, range.not_finite}) {
      if (one) kept.insert(*one);
    }
  }
}

Kept kept_positions(std::span<const Point> points, std::size_t most) {
  constexpr std::size_t kFewest = 4;
  const std::vector<bool> superseded = superseded_points(points);
  std::vector<std::size_t> current;
  std::vector<std::size_t> others;
  Kept kept;
  for (std::size_t i = 0; i < points.size(); ++i) {
    (superseded[i] ? others : current).push_back(i);
    if (i == 0 || superseded[i] == superseded[i - 1]) continue;
    kept.positions.insert(i - 1);                  // What was left out before counts for this one.
    if (!superseded[i]) kept.positions.insert(i);  // It supersedes all of those before it that are.
  }
  kept.without_superseded = kept.positions.size() + 2 * kFewest > most / 2;
  if (others.empty()) kept.without_superseded = false;
  if (kept.without_superseded) kept.positions.clear();
  std::size_t left = most - kept.positions.size();
  if (!others.empty() && !kept.without_superseded) {
    // Their part, and half of what there is at most.
    const std::size_t part = std::clamp(left * others.size() / points.size(), kFewest, left / 2);
    keep_extremes(points, others, part, kept.positions);
    left -= part;
  }
  keep_extremes(points, current, left, kept.positions);
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

std::vector<bool> superseded_points(std::span<const Point> points) {
  std::vector<bool> superseded(points.size());
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (std::size_t i = points.size(); i-- > 0;) {
    superseded[i] = i + 1 < points.size() && points[i].step >= least;
    least = std::min(least, points[i].step);
  }
  return superseded;
}

std::vector<SelectedPoint> select_points(std::span<const Point> points, std::size_t most) {
  GYRE_CHECK(most >= 4U);
  const bool are_few = points.size() <= most;
  const Kept kept = are_few ? Kept() : kept_positions(points, most);
  const std::vector<bool> superseded = kept.without_superseded ? superseded_points(points) : std::vector<bool>();
  std::vector<SelectedPoint> selected;
  double mean = 0;
  std::size_t count = 0;
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (kept.without_superseded && superseded[i]) continue;
    // Not a sum, which could be more than a double holds.
    if (std::isfinite(points[i].value)) {
      ++count;
      mean += points[i].value / static_cast<double>(count) - mean / static_cast<double>(count);
    }
    if (!are_few && !kept.positions.contains(i)) continue;
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
  for (const std::size_t i : kept_positions(points, most).positions) result.push_back(points[i]);
  return result;
}

}  // namespace gyre::metrics
