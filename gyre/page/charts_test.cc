#include "gyre/page/charts.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

namespace gyre::page {
namespace {

using Json = nlohmann::json;

void log(Charts& charts, const std::string& name, int rank, std::int64_t step, double value) {
  charts.sample({.name = name, .rank = rank, .step = step, .time_us = step * 1'000'000, .value = value});
}

// A browser draws thousands of points, not millions; what stands out must be among them.
TEST(PageCharts, a_line_has_few_points_and_keeps_what_stands_out) {
  Charts charts;
  for (int step = 0; step < 100'000; ++step) log(charts, "loss", 0, step, step == 50'001 ? 9 : 1);
  const Json line = Json::parse(charts.chart_json("loss", {}))["lines"][0];
  EXPECT_LE(line["step"].size(), Charts::kMostPoints);
  EXPECT_EQ(line["step"].size(), line["value"].size());
  EXPECT_EQ(line["step"].size(), line["time"].size());
  EXPECT_EQ(line["count"], 100'000);
  EXPECT_EQ(std::count(line["value"].begin(), line["value"].end(), 9), 1);
  EXPECT_EQ(line["mean"].size(), line["step"].size());
  std::size_t stood_for = 0;
  for (const Json& weight : line["weight"]) stood_for += weight.get<std::size_t>();
  EXPECT_EQ(stood_for, 100'000U) << "for smoothing";
}

// Zooming shows what down-sampling has left out, and the line goes on to the edges.
TEST(PageCharts, a_range_has_all_its_points_and_a_neighbour_at_each_end) {
  Charts charts;
  for (int step = 0; step < 100'000; ++step) log(charts, "loss", 0, step, step);
  const Json by_step = Json::parse(charts.chart_json("loss", {.from = 500, .to = 510}))["lines"][0];
  EXPECT_EQ(by_step["step"].size(), 13U);
  EXPECT_EQ(by_step["step"].front(), 499);
  EXPECT_EQ(by_step["step"].back(), 511);
  const Json by_time = Json::parse(charts.chart_json("loss", {.over_time = true, .from = 7, .to = 8}))["lines"][0];
  EXPECT_EQ(by_time["value"], Json::array({6, 7, 8, 9}));
}

// Lines lie over each other only if the page can tell whose they are.
TEST(PageCharts, earlier_runs_are_in_the_same_charts) {
  Charts charts;
  metrics::Run earlier;
  earlier.notes["command"] = "old";
  earlier.series[{"loss", 0}] = {{.step = 1, .time_us = 5, .value = NAN}};
  earlier.series[{"only there", 0}] = {{.step = 1, .time_us = 5, .value = 2}};
  charts.compare_with("earlier", earlier);
  const auto before = charts.version();
  log(charts, "loss", 1, 1, 3);
  EXPECT_NE(charts.version(), before);
  const Json index = Json::parse(charts.index_json("this"));
  EXPECT_EQ(index["runs"][0]["name"], "this");
  EXPECT_EQ(index["runs"][1]["notes"]["command"], "old");
  EXPECT_EQ(index["charts"], Json::parse(R"([{"name":"loss","lines":2},{"name":"only there","lines":1}])"));
  const Json lines = Json::parse(charts.chart_json("loss", {}))["lines"];
  EXPECT_EQ(lines[0]["rank"], 1);
  EXPECT_EQ(lines[1]["run"], 1);
  EXPECT_EQ(lines[1]["value"][0], "NaN");
  EXPECT_EQ(Json::parse(charts.chart_json("no such", {}))["lines"], Json::array());
}

}  // namespace
}  // namespace gyre::page
