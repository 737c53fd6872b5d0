#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace gyre::params {

/// How a server turns the workers' averaged gradients into new parameters.
enum class Rule : std::uint8_t {
  kAverage,  ///< Not at all: workers get the average and update for themselves.
  kSgd,      ///< With momentum, dampening or Nesterov's momentum.
  kRmsprop,
  kAdagrad,
  kAdam,
  kAdamw,
};
inline constexpr std::uint8_t kRules = 6;

std::string_view rule_name(Rule rule);

/// Names and meanings are those of torch.optim's optimizers.
struct UpdateOptions {
  Rule rule = Rule::kSgd;
  double rate = 1;      ///< torch's `lr`.
  double momentum = 0;  ///< Of kSgd and kRmsprop.
  double dampening = 0;
  bool nesterov = false;
  double weight_decay = 0;  ///< Added to the gradient; of kAdamw taken off the parameters.
  double alpha = 0.99;      ///< Of kRmsprop.
  bool centered = false;
  double beta1 = 0.9;  ///< Of kAdam and kAdamw.
  double beta2 = 0.999;
  bool amsgrad = false;
  double epsilon = 1e-8;
  double lr_decay = 0;  ///< Of kAdagrad.
  double initial_accumulator = 0;

  bool operator==(const UpdateOptions&) const = default;
};

/// The formulas of torch.optim 2.13 in float32, value by value: SGD without momentum gives the bits of
/// torch.optim.SGD, and the others differ from torch's by at most a few units in the last place per step, because
/// sums are fused with products here and there. Denormals are kept whatever the thread's floating-point state. A value;
/// thread-safe.
class UpdateRule {
 public:
  /// Error(kInvalidArgument) names an option that is out of range, as torch.optim does.
  explicit UpdateRule(const UpdateOptions& options);

  const UpdateOptions& options() const { return options_; }

  /// Arrays that go with each parameter value: momentum, squares, …. 0 to 3. In this order, of those that there are:
  /// kSgd: momentum. kRmsprop: squares, momentum, mean gradient. kAdagrad: sum of squares. kAdam, kAdamw: mean,
  /// squares, largest squares.
  std::size_t slots() const;
  /// Whether a step by `next` can follow one by this rule: whether they need the same slots. Rates and the like may
  /// change; Error(kInvalidArgument) names what may not.
  void check_successor(const UpdateRule& next) const;
  /// What they begin with.
  float initial_slot_value(std::size_t slot) const;

  /// Step `step` (from 1), in place. Each of `state` has as many values as the parameters; so has the gradient.
  /// kAverage leaves the parameters alone.
  void apply(std::span<float> parameters, std::span<const float> gradients, std::span<const std::span<float>> state,
             std::uint64_t step) const;

  bool operator==(const UpdateRule&) const = default;

 private:
  UpdateOptions options_;
};

}  // namespace gyre::params
