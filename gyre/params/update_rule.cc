#include "gyre/params/update_rule.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "gyre/base/check.h"
#include "gyre/base/error.h"
#include "gyre/base/floating_point.h"
#include "gyre/params/internal/update_in_vectors.h"

namespace gyre::params {
namespace {

constexpr std::array<std::string_view, kRules> kRuleNames = {"average", "sgd", "rmsprop", "adagrad", "adam", "adamw"};

void require(bool holds, std::string_view option, double value, std::string_view range) {
  if (holds) return;  // Which a NaN never does.
  throw Error(ErrorCode::kInvalidArgument, fmt::format("{} is {}: it must be {}", option, value, range));
}

void check(const UpdateOptions& options) {
  const auto at_least_zero = [](std::string_view option, double value) {
    require(value >= 0 && std::isfinite(value), option, value, "a number from 0 on");
  };
  const auto a_share = [](std::string_view option, double value) {
    require(value >= 0 && value < 1, option, value, "from 0 to below 1");
  };
  require(std::isfinite(options.rate), "the learning rate", options.rate, "a number");
  at_least_zero("momentum", options.momentum);
  require(std::isfinite(options.dampening), "dampening", options.dampening, "a number");
  at_least_zero("weight_decay", options.weight_decay);
  at_least_zero("alpha", options.alpha);
  a_share("beta1", options.beta1);
  a_share("beta2", options.beta2);
  at_least_zero("epsilon", options.epsilon);
  at_least_zero("lr_decay", options.lr_decay);
  at_least_zero("initial_accumulator", options.initial_accumulator);
  if (options.rule == Rule::kSgd && options.nesterov && (options.momentum == 0 || options.dampening != 0)) {
    throw Error(ErrorCode::kInvalidArgument, "Nesterov's momentum needs a momentum and no dampening");
  }
}

/// torch counts with Python's floats and rounds what enters an operation. Not inlined: see DefaultFloatingPoint.
[[gnu::noinline]] internal::StepNumbers numbers_of(const UpdateOptions& options, std::uint64_t step) {
  const double rate = options.rate;
  const auto number = static_cast<double>(step);
  internal::StepNumbers numbers{.rate = static_cast<float>(rate),
                                .weight_decay = static_cast<float>(options.weight_decay),
                                .momentum = static_cast<float>(options.momentum),
                                .in_momentum = step == 1 ? 1.0F : static_cast<float>(1 - options.dampening),
                                .alpha = static_cast<float>(options.alpha),
                                .in_squares = static_cast<float>(1 - options.alpha),
                                .in_mean = static_cast<float>(1 - options.alpha),
                                .epsilon = static_cast<float>(options.epsilon)};
  if (options.rule == Rule::kAdagrad) {
    numbers.alpha = numbers.in_squares = 1;
    numbers.rate = static_cast<float>(rate / (1 + (number - 1) * options.lr_decay));
  }
  if (options.rule == Rule::kAdam || options.rule == Rule::kAdamw) {
    numbers.rate = static_cast<float>(rate / (1 - std::pow(options.beta1, number)));
    numbers.correction = static_cast<float>(std::sqrt(1 - std::pow(options.beta2, number)));
    numbers.in_mean = static_cast<float>(1 - options.beta1);
    numbers.alpha = static_cast<float>(options.beta2);
    numbers.in_squares = static_cast<float>(1 - options.beta2);
  }
  if (options.rule == Rule::kAdamw) {
    numbers.weight_decay = 0;
    numbers.shrink = static_cast<float>(1 - rate * options.weight_decay);
  }
  return numbers;
}

}  // namespace

std::string_view rule_name(Rule rule) { return kRuleNames.at(static_cast<std::size_t>(rule)); }

UpdateRule::UpdateRule(const UpdateOptions& options) : options_(options) { check(options); }

std::size_t UpdateRule::slots() const {
  const std::size_t momentum = options_.momentum > 0 ? 1 : 0;
  switch (options_.rule) {
    case Rule::kAverage: return 0;
    case Rule::kSgd: return momentum;
    case Rule::kRmsprop: return 1 + momentum + (options_.centered ? 1 : 0);
    case Rule::kAdagrad: return 1;
    case Rule::kAdam:
    case Rule::kAdamw: return options_.amsgrad ? 3 : 2;
  }
  return 0;
}

float UpdateRule::initial_slot_value(std::size_t /*slot*/) const {
  return options_.rule == Rule::kAdagrad ? static_cast<float>(options_.initial_accumulator) : 0.0F;
}

void UpdateRule::check_successor(const UpdateRule& next) const {
  const UpdateOptions& from = options_;
  const UpdateOptions& to = next.options_;
  const auto require_same = [](bool same, std::string_view what) {
    if (same) return;
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("{} cannot change while the servers hold the optimizer's state, which depends on it", what));
  };
  require_same(from.rule == to.rule, "the optimizer");
  require_same((from.momentum > 0) == (to.momentum > 0), "whether there is momentum");
  require_same(from.nesterov == to.nesterov, "nesterov");
  require_same(from.centered == to.centered, "centered");
  require_same(from.amsgrad == to.amsgrad, "amsgrad");
}

void UpdateRule::apply(std::span<float> parameters, std::span<const float> gradients,
                       std::span<const std::span<float>> state, std::uint64_t step) const {
  GYRE_CHECK(parameters.size() == gradients.size());
  GYRE_CHECK(state.size() == slots());
  GYRE_CHECK(step >= 1U);
  const DefaultFloatingPoint state_of_thread;
  internal::Arrays arrays{.parameters = parameters.data(), .gradients = gradients.data(), .count = parameters.size()};
  std::size_t next = 0;
  const auto take = [&](bool there) { return there ? state[next++].data() : nullptr; };
  const internal::StepNumbers numbers = numbers_of(options_, step);
  switch (options_.rule) {
    case Rule::kAverage: return;
    case Rule::kSgd: arrays.first = take(slots() > 0); return internal::sgd_step(arrays, numbers, options_.nesterov);
    case Rule::kRmsprop:
      arrays.second = take(true);
      arrays.first = take(options_.momentum > 0);
      arrays.third = take(options_.centered);
      return internal::rmsprop_step(arrays, numbers);
    case Rule::kAdagrad: arrays.second = take(true); return internal::adagrad_step(arrays, numbers);
    case Rule::kAdam:
    case Rule::kAdamw:
      arrays.first = take(true);
      arrays.second = take(true);
      arrays.third = take(options_.amsgrad);
      return internal::adam_step(arrays, numbers);
  }
}

}  // namespace gyre::params
