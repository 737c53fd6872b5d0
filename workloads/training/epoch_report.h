#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gyre/base/clock.h"
#include "workloads/training/metric.h"

namespace gyre::training {

/// What an epoch has brought and cost, as a line for people and as curves. Of an epoch in which a run was continued,
/// the costs are those since then; of one behind which it was continued there are none. Not thread-safe.
class EpochReport {
 public:
  /// `metrics` outlive this; `samples`: what they are called; `ranks`: that share the work.
  EpochReport(std::span<const Metric> metrics, std::string samples, int ranks)
      : metrics_(metrics), samples_(std::move(samples)), ranks_(ranks) {}

  void begin();
  /// `samples`: of this rank.
  void note_step(double learning_rate, std::uint64_t samples);
  /// Ends the time that counts; an evaluation has its own.
  void end();

  /// "loss 0.6931  812 images/s": so far, for a progress bar.
  std::string describe_progress(const MetricSums& trained) const;
  /// After end(). `waited`: for data.
  std::string line(const MetricSums& trained, const MetricSums& tested, std::chrono::nanoseconds waited) const;
  std::vector<std::pair<std::string, double>> curves(const MetricSums& trained, const MetricSums& tested,
                                                     std::chrono::nanoseconds waited) const;

 private:
  double samples_per_second(double seconds) const;
  double steps_per_second() const { return static_cast<double>(steps_) / seconds_; }

  const std::span<const Metric> metrics_;
  const std::string samples_;
  const int ranks_;
  SteadyClock::time_point start_;
  double seconds_ = 0;
  std::uint64_t samples_here_ = 0;  // By this rank.
  std::uint64_t steps_ = 0;
  double last_rate_ = 0;  // Of learning.
};

}  // namespace gyre::training
