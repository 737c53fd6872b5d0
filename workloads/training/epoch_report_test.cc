// Rates are what people compare machines by: they have to count what all ranks have done, once.
#include "workloads/training/epoch_report.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>

namespace gyre::training {
namespace {

TEST(EpochReport, a_rate_counts_the_samples_of_all_ranks_and_none_from_before_a_resume) {
  constexpr std::array kMetrics = {Metric{"loss"}};
  EpochReport report(kMetrics, "images");
  report.begin(40);
  for (const std::uint64_t samples : {800U, 155U}) report.note_step(0.1, samples);
  report.end();
  MetricSums trained(1);
  trained.add(std::array{1.0}, 995);
  MetricSums tested(1);
  tested.add(std::array{1.0}, 10);
  std::map<std::string, double> curves;
  for (const auto& [name, value] : report.curves(trained, tested, {})) curves[name] = value;
  EXPECT_DOUBLE_EQ(curves.at("train/images_per_second") / curves.at("train/steps_per_second"), 955.0 / 2);
}

}  // namespace
}  // namespace gyre::training
