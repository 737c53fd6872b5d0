#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gyre::training {

/// What is measured of each sample, and reported as the mean over many.
struct Metric {
  std::string_view name;
  bool lowest_is_best = true;
};

/// Metrics summed over samples, and how many samples.
struct MetricSums {
  explicit MetricSums(std::size_t count) : metrics(count) {}

  std::vector<double> metrics;
  double samples = 0;

  void add(std::span<const double> others, std::uint64_t count);
  std::vector<double> means() const;
};

/// The means, "loss 0.6931  accuracy 0.5000"; `prefix` before each name.
std::string describe(std::span<const Metric> metrics, std::string_view prefix, const MetricSums& sums);

}  // namespace gyre::training
