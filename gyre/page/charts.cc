#include "gyre/page/charts.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "gyre/metrics/json_number.h"
#include "gyre/page/internal/json.h"

namespace gyre::page {

namespace {

using Json = nlohmann::json;
using metrics::Point;

double place_of(const Point& point, bool over_time) {
  return over_time ? static_cast<double>(point.time_us) / 1e6 : static_cast<double>(point.step);
}

/// The points of the range, with one before and one behind it, so that a line goes on to the edges of a chart; of steps
/// that were done again, the last.
std::vector<Point> within(const std::vector<Point>& points, const ChartRange& range) {
  if (std::isinf(range.from) && std::isinf(range.to)) return points;
  std::vector<Point> inside;
  const Point* before = nullptr;
  const Point* behind = nullptr;
  const std::vector<bool> superseded = range.over_time ? std::vector<bool>() : metrics::superseded_points(points);
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (!superseded.empty() && superseded[i]) continue;
    const Point& point = points[i];
    const double place = place_of(point, range.over_time);
    if (place < range.from) {
      if (before == nullptr || place >= place_of(*before, range.over_time)) before = &point;
    } else if (place > range.to) {
      if (behind == nullptr || place < place_of(*behind, range.over_time)) behind = &point;
    } else {
      inside.push_back(point);
    }
  }
  if (before != nullptr) inside.insert(inside.begin(), *before);
  if (behind != nullptr) inside.push_back(*behind);
  return inside;
}

Json line_json(std::size_t run, int rank, const std::vector<Point>& points, std::size_t most) {
  Json steps = Json::array();
  Json times = Json::array();
  Json values = Json::array();
  Json weights = Json::array();
  Json means = Json::array();
  for (const auto& [point, count, mean] : metrics::select_points(points, most)) {
    steps.push_back(point.step);
    times.push_back(static_cast<double>(point.time_us) / 1e6);
    values.push_back(metrics::json_number(point.value));
    weights.push_back(count);
    means.push_back(std::isfinite(mean) ? Json(mean) : Json());
  }
  Json line = {{"run", run},
               {"rank", rank},
               {"step", std::move(steps)},
               {"time", std::move(times)},
               {"value", std::move(values)},
               {"count", points.size()}};
  if (line["step"].size() < points.size()) {
    line["weight"] = std::move(weights);
    line["mean"] = std::move(means);
  }
  return line;
}

}  // namespace

bool Charts::add(const metrics::Sample& sample) {
  const auto chart = own_.charts.find(sample.name);
  const bool is_known = chart != own_.charts.end() && chart->second.contains(sample.rank);
  if (!is_known && lines_ == limits_.lines) return false;
  Lines& lines = chart != own_.charts.end() ? chart->second : own_.charts[std::string(sample.name)];
  if (!is_known) ++lines_;
  lines[sample.rank].push_back({sample.step, sample.time_us, sample.value});
  ++version_;
  if (++points_ > limits_.points) thin_out();
  return true;
}

void Charts::thin_out() {
  constexpr std::size_t kFewest = 16;
  points_ = 0;
  for (auto& [name, lines] : own_.charts) {
    for (auto& [rank, points] : lines) {
      points = metrics::downsample(points, std::max(kFewest, points.size() / 2));
      points_ += points.size();
    }
  }
  // Of very many lines a few points each are left, and this does not happen again at once.
  limits_.points = std::max(limits_.points, 2 * points_);
}

void Charts::note(std::string_view key, std::string_view value) {
  own_.notes[std::string(key)] = value;
  ++version_;
}

void Charts::compare_with(std::string name, metrics::Run run) {
  std::string end = metrics::end_of(run);
  ComparedRun other{.name = std::move(name), .notes = std::move(run.notes), .end = std::move(end), .charts = {}};
  for (auto& [key, points] : run.series) other.charts[key.name][key.rank] = std::move(points);
  others_.push_back(std::move(other));
}

metrics::Run Charts::latest() const {
  metrics::Run run;
  for (const auto& [name, lines] : own_.charts) {
    for (const auto& [rank, points] : lines) run.series[{name, rank}] = {points.back()};
  }
  return run;
}

std::vector<const Charts::Lines*> Charts::lines_of(const std::string& name) const {
  std::vector<const Lines*> all;
  const auto add = [&](const ComparedRun& run) {
    const auto found = run.charts.find(name);
    all.push_back(found == run.charts.end() ? nullptr : &found->second);
  };
  add(own_);
  for (const ComparedRun& other : others_) add(other);
  return all;
}

std::string Charts::index_json(const std::string& name) const {
  Json runs = Json::array({{{"name", name}, {"notes", own_.notes}}});
  std::map<std::string, std::size_t> counts;
  const auto count = [&counts](const ComparedRun& run) {
    for (const auto& [chart, lines] : run.charts) counts[chart] += lines.size();
  };
  count(own_);
  for (const ComparedRun& other : others_) {
    runs.push_back({{"name", other.name}, {"notes", other.notes}, {"end", other.end}});
    count(other);
  }
  Json charts = Json::array();
  for (const auto& [chart, lines] : counts) charts.push_back({{"name", chart}, {"lines", lines}});
  return internal::text_of({{"runs", std::move(runs)}, {"charts", std::move(charts)}});
}

std::string Charts::chart_json(const std::string& name, const ChartRange& range) const {
  const std::vector<const Lines*> runs = lines_of(name);
  std::size_t count = 0;
  for (const Lines* lines : runs) count += lines == nullptr ? 0 : lines->size();
  const std::size_t most = std::clamp(kMostPointsOfChart / std::max<std::size_t>(count, 1), kFewestPoints, kMostPoints);
  Json all = Json::array();
  for (std::size_t run = 0; run < runs.size(); ++run) {
    if (runs[run] == nullptr) continue;
    for (const auto& [rank, points] : *runs[run]) all.push_back(line_json(run, rank, within(points, range), most));
  }
  return internal::text_of({{"name", name}, {"lines", std::move(all)}});
}

}  // namespace gyre::page
