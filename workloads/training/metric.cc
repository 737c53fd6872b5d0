#include "workloads/training/metric.h"

#include <fmt/format.h>

#include "gyre/base/check.h"

namespace gyre::training {

void MetricSums::add(std::span<const double> others, std::uint64_t count) {
  GYRE_CHECK(others.size() == metrics.size());
  for (std::size_t i = 0; i < metrics.size(); ++i) metrics[i] += others[i];
  samples += static_cast<double>(count);
}

std::vector<double> MetricSums::means() const {
  std::vector<double> means = metrics;
  for (double& mean : means) mean = samples > 0 ? mean / samples : 0;
  return means;
}

std::string describe(std::span<const Metric> metrics, std::string_view prefix, const MetricSums& sums) {
  std::string text;
  const std::vector<double> means = sums.means();
  for (std::size_t i = 0; i < means.size(); ++i) {
    text += fmt::format("{}{}{} {:.4f}", text.empty() ? "" : "  ", prefix, metrics[i].name, means[i]);
  }
  return text;
}

}  // namespace gyre::training
