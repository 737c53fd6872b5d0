#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "gyre/train/gradient_exchange.h"
#include "workloads/training/metric.h"

namespace gyre::training {

/// Ends a run whose numbers are no longer finite, before it changes the parameters. What a rank has to report travels
/// with the gradients, as the gradient of one more parameter: all ranks learn it in the same step, without a message
/// more. Where the exchange does not average gradients, the rank that notices fails alone, and its job with it.
/// All errors are Error(kInvalidArgument) and name the metric or tensor, the rank, and `where` ("in step 3 of epoch
/// 2").
class Divergence {
 public:
  /// `metrics`: of which there are sums; they outlive this, as the exchange does. `advice`: what a person can do now,
  /// in sentences that end the message.
  Divergence(train::GradientExchange& exchange, std::span<const Metric> metrics, std::function<std::string()> advice);

  /// What has to be attached to the exchange together with the parameters.
  const train::NamedTensors& carriers() const { return carriers_; }

  /// After backward: the sums of this rank's samples, by metric. An error at once where the exchange does not average.
  void report(std::span<const double> sums, std::string_view where);
  /// After the exchange, before the optimizer's step: an error on every rank if one has reported a value that is not
  /// finite.
  void check_reports(std::string_view where) const;

  /// Outside a step, collective: an error on every rank if one of them has sums that are not finite. `set`: "test ", or
  /// nothing.
  void check_sums(std::span<const double> sums, std::string_view set, std::string_view where) const;

  /// An error where one of this rank's tensors holds a value that is not finite.
  void check_tensors(const train::NamedTensors& tensors, std::string_view where) const;

 private:
  [[noreturn]] void fail(std::string_view what, std::string_view where) const;

  train::GradientExchange& exchange_;
  std::span<const Metric> metrics_;
  std::function<std::string()> advice_;
  train::NamedTensors carriers_;  // One tensor, [ranks, metrics], or none.
};

}  // namespace gyre::training
