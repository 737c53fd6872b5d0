#include "apps/gyre/metrics_export.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/cli/table.h"
#include "gyre/data/formats/tfrecord.h"
#include "gyre/data/tensorboard.h"
#include "gyre/metrics/json_number.h"

namespace gyre::app {

namespace {

using metrics::Point;
using Json = nlohmann::json;

double seconds(std::int64_t time_us) { return static_cast<double>(time_us) * 1e-6; }

/// A NaN has a sign, which says nothing.
std::string number_text(double value) { return std::isnan(value) ? "nan" : fmt::format("{}", value); }

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char letter : text) quoted += letter == '"' ? std::string("\"\"") : std::string(1, letter);
  return quoted + "\"";
}

/// What is said of a run's points.
using PointsJson = std::function<Json(const std::vector<Point>&)>;

Json point_json(const Point& point) { return {point.step, seconds(point.time_us), metrics::json_number(point.value)}; }

Json json_of(const metrics::Run& run, const PointsJson& points_json) {
  Json series = Json::array();
  for (const auto& [key, points] : run.series) {
    Json values = points_json(points);
    series.push_back({{"name", key.name}, {"rank", key.rank}, {"points", std::move(values)}});
  }
  return {{"notes", run.notes}, {"end", metrics::end_of(run)}, {"series", std::move(series)}};
}

/// A command and a file's name are bytes, which need not be UTF-8.
std::string json_text(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

/// What the ranks logged in one call, as far as that can be seen: it is one event.
using Moment = std::pair<std::int64_t, std::int64_t>;  // Time, step.

Bytes first_event(const std::map<Moment, std::vector<data::Scalar>>& moments) {
  return data::framed_tfrecord(data::version_event(seconds(moments.empty() ? 0 : moments.begin()->first.first)));
}

constexpr const char* kEventFile = "events.out.tfevents.0.gyre";

bool begins_with(const std::filesystem::path& file, const Bytes& begin) {
  std::string there(begin.size(), '\0');
  std::ifstream stream(file, std::ios::binary);
  return stream.read(there.data(), static_cast<std::streamsize>(there.size())) && there == as_text(begin);
}

/// TensorBoard would draw them as one run. A run that has gone on begins as it did.
void refuse_other_runs(const std::filesystem::path& folder,
                       const std::map<int, std::map<Moment, std::vector<data::Scalar>>>& ranks) {
  std::map<std::string, Bytes> own;
  for (const auto& [rank, moments] : ranks) own[fmt::format("rank-{}", rank)] = first_event(moments);
  std::error_code failure;
  for (const auto& entry : std::filesystem::directory_iterator(folder, failure)) {
    const std::filesystem::path file = entry.path() / kEventFile;
    if (!std::filesystem::exists(file, failure)) continue;
    const auto begin = own.find(entry.path().filename());
    if (begin != own.end() && begins_with(file, begin->second)) continue;
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("{} has the curves of another run, and TensorBoard would take both for one; name a folder of "
                    "its own for each run",
                    folder.string()));
  }
}

Bytes events_of(const std::map<Moment, std::vector<data::Scalar>>& moments) {
  Bytes bytes = first_event(moments);
  for (const auto& [moment, scalars] : moments) {
    const Bytes record = data::framed_tfrecord(data::scalar_event(seconds(moment.first), moment.second, scalars));
    bytes.insert(bytes.end(), record.begin(), record.end());
  }
  return bytes;
}

std::string short_number(double value) { return std::isnan(value) ? "nan" : fmt::format("{:.6g}", value); }

/// The lowest and the highest number; NaN where there is none.
std::array<double, 2> range_of(const std::vector<Point>& points) {
  std::array<double, 2> range = {std::nan(""), std::nan("")};
  for (const Point& point : points) {
    range = {std::fmin(range[0], point.value), std::fmax(range[1], point.value)};
  }
  return range;
}

std::string note_of(const metrics::Run& run, const std::string& key) {
  const auto found = run.notes.find(key);
  if (found == run.notes.end()) return {};
  return key == "git_diff" || key == "git_untracked" ? fmt::format("{} bytes", found->second.size()) : found->second;
}

std::string last_of(const metrics::Run& run, const metrics::SeriesKey& key) {
  const auto found = run.series.find(key);
  return found == run.series.end() ? std::string() : short_number(found->second.back().value);
}

/// For a table, which one name of 200 bytes would make wider than a screen: its beginning and its end.
std::string short_name(const std::string& name) {
  constexpr std::size_t kLongest = 48;
  constexpr std::size_t kHalf = 22;
  if (name.size() <= kLongest) return name;
  const auto begins_character = [&](std::size_t at) { return (static_cast<unsigned char>(name[at]) & 0xC0U) != 0x80U; };
  std::size_t end = kHalf;
  while (!begins_character(end)) --end;
  std::size_t rest = name.size() - kHalf;
  while (!begins_character(rest)) ++rest;
  return name.substr(0, end) + "…" + name.substr(rest);
}

}  // namespace

void refuse_own_input(const std::filesystem::path& target, const std::vector<std::string>& inputs) {
  for (const std::string& input : inputs) {
    std::error_code none;
    if (!std::filesystem::equivalent(target, input, none)) continue;
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} is what is read; it would be lost: write to another file", target.string()));
  }
}

std::string metrics_csv(const metrics::Run& run) {
  std::string text = "name,rank,step,time,value\n";
  for (const auto& [key, points] : run.series) {
    const std::string name = csv_field(key.name);
    for (const Point& point : points) {
      text += fmt::format("{},{},{},{:.6f},{}\n", name, key.rank, point.step, seconds(point.time_us),
                          number_text(point.value));
    }
  }
  return text;
}

std::string metrics_json(const metrics::Run& run, std::size_t most_points) {
  return json_text(json_of(run,
                           [most_points](const std::vector<Point>& points) {
                             Json values = Json::array();
                             for (const Point& point :
                                  most_points == 0 ? points : metrics::downsample(points, most_points)) {
                               values.push_back(point_json(point));
                             }
                             return values;
                           })) +
         "\n";
}

std::string metrics_report_json(const std::vector<metrics::Run>& runs, const std::vector<std::string>& names,
                                std::size_t most_points) {
  Json all = Json::array();
  for (std::size_t i = 0; i < runs.size(); ++i) {
    all.push_back(json_of(runs[i], [most_points](const std::vector<Point>& points) {
      const bool is_selection = points.size() > most_points;
      Json values = Json::array();
      for (const auto& [point, count, mean] : metrics::select_points(points, most_points)) {
        values.push_back(point_json(point));
        if (!is_selection) continue;
        values.back().push_back(count);
        values.back().push_back(std::isfinite(mean) ? Json(mean) : Json());
      }
      return values;
    }));
    all.back()["name"] = names[i];
  }
  return json_text({{"runs", std::move(all)}});
}

void export_to_tensorboard(const metrics::Run& run, const std::filesystem::path& folder) {
  std::map<int, std::map<Moment, std::vector<data::Scalar>>> ranks;
  for (const auto& [key, points] : run.series) {
    for (const Point& point : points) {
      ranks[key.rank][{point.time_us, point.step}].push_back({key.name, point.value});
    }
  }
  refuse_other_runs(folder, ranks);
  for (const auto& [rank, moments] : ranks) {
    const std::filesystem::path of_rank = folder / fmt::format("rank-{}", rank);
    std::error_code failure;
    std::filesystem::create_directories(of_rank, failure);
    if (failure) throw system_error(fmt::format("cannot make the folder {}", of_rank.string()), failure.value());
    write_file_atomically(of_rank / kEventFile, events_of(moments));
  }
}

std::string metrics_summary(const metrics::Run& run) {
  std::string text = fmt::format("{:<10} {}\n", "end", metrics::end_of(run));
  for (const auto& [key, value] : run.notes) {
    text += fmt::format("{:<10} {}\n", key, cli::printable(note_of(run, key)));
  }
  cli::Table table({"SERIES", "RANK", "VALUES", "STEPS", "LAST", "LOWEST", "HIGHEST"});
  for (const auto& [key, points] : run.series) {
    const auto [first, last] = std::ranges::minmax_element(points, {}, &Point::step);
    const auto [lowest, highest] = range_of(points);
    table.add({short_name(key.name), std::to_string(key.rank), std::to_string(points.size()),
               fmt::format("{}–{}", first->step, last->step), short_number(points.back().value), short_number(lowest),
               short_number(highest)});
  }
  return table.empty() ? text : text + "\n" + table.text();
}

std::string metrics_comparison(const std::vector<metrics::Run>& runs, const std::vector<std::string>& names) {
  std::set<std::string> facts;
  std::set<metrics::SeriesKey> keys;
  for (const metrics::Run& run : runs) {
    for (const auto& [key, value] : run.notes) facts.insert(key);
    for (const auto& [key, points] : run.series) keys.insert(key);
  }
  std::vector<std::string> headings = {"", "RANK"};
  headings.insert(headings.end(), names.begin(), names.end());
  cli::Table table(std::move(headings));
  for (const std::string& fact : facts) {
    const auto differs = [&](const metrics::Run& run) {
      const auto here = run.notes.find(fact);
      const auto first = runs.front().notes.find(fact);
      return (here == run.notes.end()) != (first == runs.front().notes.end()) ||
             (here != run.notes.end() && here->second != first->second);
    };
    if (std::ranges::none_of(runs, differs)) continue;
    std::vector<std::string> row = {fact, ""};
    for (const metrics::Run& run : runs) row.push_back(note_of(run, fact));
    table.add(std::move(row));
  }
  for (const metrics::SeriesKey& key : keys) {
    std::vector<std::string> row = {short_name(key.name), std::to_string(key.rank)};
    for (const metrics::Run& run : runs) row.push_back(last_of(run, key));
    table.add(std::move(row));
  }
  return table.text();
}

}  // namespace gyre::app
