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
  /// `metrics` outlive this; `samples`: what they are called.
  EpochReport(std::span<const Metric> metrics, std::string samples) : metrics_(metrics), samples_(std::move(samples)) {}

  /// `samples_before`: of the epoch, of all ranks, trained before: those that do not count.
  void begin(double samples_before);
  /// `samples`: of all ranks, as far as this one knows.
  void note_step(double learning_rate, std::uint64_t samples);
  /// Ends the time that counts; an evaluation has its own.
  void end();

  /// "loss 0.6931  812 images/s": so far, for a progress bar.
  std::string describe_progress(const MetricSums& trained) const;
  /// After end(), as curves(). `trained`: over all ranks. `waited`: for data.
  std::string line(const MetricSums& trained, const MetricSums& tested, std::chrono::nanoseconds waited) const;
  std::vector<std::pair<std::string, double>> curves(const MetricSums& trained, const MetricSums& tested,
                                                     std::chrono::nanoseconds waited) const;

 private:
  double samples_per_second(const MetricSums& trained) const { return (trained.samples - samples_before_) / seconds_; }
  double steps_per_second() const { return static_cast<double>(steps_) / seconds_; }

  const std::span<const Metric> metrics_;
  const std::string samples_;
  SteadyClock::time_point start_;
  double seconds_ = 0;
  double samples_before_ = 0;
  std::uint64_t samples_here_ = 0;  // Since begin(), of the steps that this rank has taken.
  std::uint64_t steps_ = 0;
  double last_rate_ = 0;  // Of learning.
};

}  // namespace gyre::training
