#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "gyre/train/gradient_exchange.h"
#include "workloads/training/metric.h"

namespace gyre::training {

/// Ends a run whose numbers are no longer finite, before it changes the parameters. What a rank has to report travels
/// with the gradients, as the gradient of one more parameter: all ranks learn it in the same step, without a message
/// more. Where the exchange does not average gradients, the rank that notices fails alone, and its job with it.
class Divergence {
 public:
  /// `metrics`: of which report() gets the sums; they outlive this, as the exchange does.
  Divergence(train::GradientExchange& exchange, std::span<const Metric> metrics);

  /// What has to be attached to the exchange together with the parameters.
  const train::NamedTensors& carriers() const { return carriers_; }

  /// After backward: the sums of this rank's samples, by metric; empty where it has none. `where`: "in step 3 of epoch
  /// 2". Error(kInvalidArgument) where the exchange does not average.
  void report(std::span<const double> sums, std::string_view where);
  /// After the exchange, before the optimizer's step. Error(kInvalidArgument) on every rank if one has reported a value
  /// that is not finite: it names rank and metric.
  void check(std::string_view where) const;

 private:
  train::GradientExchange& exchange_;
  std::span<const Metric> metrics_;
  train::NamedTensors carriers_;  // One tensor, [ranks, metrics], or none.
};

/// Error(kInvalidArgument), with the first metric whose value is not finite; `set`: "test ", or nothing.
void check_finite(std::span<const Metric> metrics, std::span<const double> values, std::string_view set,
                  std::string_view where);

/// Error(kInvalidArgument) where one of the tensors holds a value that is not finite. `where`: "after epoch 2".
void check_finite(const train::NamedTensors& tensors, std::string_view where);

}  // namespace gyre::training
