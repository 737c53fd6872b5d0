#include "gyre/params/internal/update_in_vectors.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "gyre/params/internal/update_in_vectors.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace gyre::params::internal::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// Calls `one(tag, i)` for whole vectors, and for the values that are left with vectors of one lane.
template <typename Step>
void for_each_vector(std::size_t count, const Step& one) {
  const hn::ScalableTag<float> tag;
  const std::size_t lanes = hn::Lanes(tag);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) one(tag, i);
  const hn::CappedTag<float, 1> single;
  for (; i < count; ++i) one(single, i);
}

/// The gradient with the weight decay added.
template <typename Tag>
auto decayed_gradient(Tag tag, const Arrays& arrays, const StepNumbers& numbers, std::size_t i) {
  const auto gradient = hn::LoadU(tag, arrays.gradients + i);
  if (numbers.weight_decay == 0) return gradient;
  return hn::MulAdd(hn::Set(tag, numbers.weight_decay), hn::LoadU(tag, arrays.parameters + i), gradient);
}

/// parameters -= rate * direction
template <typename Tag, typename Vector>
void take_off(Tag tag, const Arrays& arrays, const StepNumbers& numbers, std::size_t i, Vector direction) {
  const auto parameter = hn::LoadU(tag, arrays.parameters + i);
  hn::StoreU(hn::MulAdd(direction, hn::Set(tag, -numbers.rate), parameter), tag, arrays.parameters + i);
}

void sgd_step(const Arrays& arrays, const StepNumbers& numbers, bool nesterov) {
  for_each_vector(arrays.count, [&](auto tag, std::size_t i) HWY_ATTR {
    auto gradient = decayed_gradient(tag, arrays, numbers, i);
    if (arrays.first != nullptr) {
      const auto kept = hn::Mul(hn::LoadU(tag, arrays.first + i), hn::Set(tag, numbers.momentum));
      const auto velocity = hn::MulAdd(gradient, hn::Set(tag, numbers.in_momentum), kept);
      hn::StoreU(velocity, tag, arrays.first + i);
      gradient = nesterov ? hn::MulAdd(velocity, hn::Set(tag, numbers.momentum), gradient) : velocity;
    }
    take_off(tag, arrays, numbers, i, gradient);
  });
}

/// squares = alpha * squares + in_squares * gradient^2, stored and returned.
template <typename Tag, typename Vector>
auto new_squares(Tag tag, const Arrays& arrays, const StepNumbers& numbers, std::size_t i, Vector gradient) {
  const auto kept = hn::Mul(hn::LoadU(tag, arrays.second + i), hn::Set(tag, numbers.alpha));
  const auto squares = hn::MulAdd(hn::Mul(hn::Set(tag, numbers.in_squares), gradient), gradient, kept);
  hn::StoreU(squares, tag, arrays.second + i);
  return squares;
}

/// mean += in_mean * (gradient - mean), stored and returned.
template <typename Tag, typename Vector>
auto new_mean(Tag tag, float* means, const StepNumbers& numbers, std::size_t i, Vector gradient) {
  const auto before = hn::LoadU(tag, means + i);
  const auto mean = hn::MulAdd(hn::Set(tag, numbers.in_mean), hn::Sub(gradient, before), before);
  hn::StoreU(mean, tag, means + i);
  return mean;
}

void rmsprop_step(const Arrays& arrays, const StepNumbers& numbers) {
  for_each_vector(arrays.count, [&](auto tag, std::size_t i) HWY_ATTR {
    const auto gradient = decayed_gradient(tag, arrays, numbers, i);
    auto squares = new_squares(tag, arrays, numbers, i, gradient);
    if (arrays.third != nullptr) {
      const auto mean = new_mean(tag, arrays.third, numbers, i, gradient);
      squares = hn::NegMulAdd(mean, mean, squares);
    }
    const auto direction = hn::Div(gradient, hn::Add(hn::Sqrt(squares), hn::Set(tag, numbers.epsilon)));
    if (arrays.first == nullptr) return take_off(tag, arrays, numbers, i, direction);
    const auto velocity = hn::MulAdd(hn::LoadU(tag, arrays.first + i), hn::Set(tag, numbers.momentum), direction);
    hn::StoreU(velocity, tag, arrays.first + i);
    take_off(tag, arrays, numbers, i, velocity);
  });
}

void adagrad_step(const Arrays& arrays, const StepNumbers& numbers) {
  for_each_vector(arrays.count, [&](auto tag, std::size_t i) HWY_ATTR {
    const auto gradient = decayed_gradient(tag, arrays, numbers, i);
    const auto squares = new_squares(tag, arrays, numbers, i, gradient);
    take_off(tag, arrays, numbers, i, hn::Div(gradient, hn::Add(hn::Sqrt(squares), hn::Set(tag, numbers.epsilon))));
  });
}

void adam_step(const Arrays& arrays, const StepNumbers& numbers) {
  for_each_vector(arrays.count, [&](auto tag, std::size_t i) HWY_ATTR {
    if (numbers.shrink != 1) {
      const auto parameter = hn::LoadU(tag, arrays.parameters + i);
      hn::StoreU(hn::Mul(parameter, hn::Set(tag, numbers.shrink)), tag, arrays.parameters + i);
    }
    const auto gradient = decayed_gradient(tag, arrays, numbers, i);
    const auto mean = new_mean(tag, arrays.first, numbers, i, gradient);
    auto squares = new_squares(tag, arrays, numbers, i, gradient);
    if (arrays.third != nullptr) {
      squares = hn::Max(squares, hn::LoadU(tag, arrays.third + i));
      hn::StoreU(squares, tag, arrays.third + i);
    }
    const auto root = hn::Div(hn::Sqrt(squares), hn::Set(tag, numbers.correction));
    take_off(tag, arrays, numbers, i, hn::Div(mean, hn::Add(root, hn::Set(tag, numbers.epsilon))));
  });
}

}  // namespace gyre::params::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gyre::params::internal {
namespace {

HWY_EXPORT(sgd_step);
HWY_EXPORT(rmsprop_step);
HWY_EXPORT(adagrad_step);
HWY_EXPORT(adam_step);

}  // namespace

void sgd_step(const Arrays& arrays, const StepNumbers& numbers, bool nesterov) {
  HWY_DYNAMIC_DISPATCH(sgd_step)(arrays, numbers, nesterov);
}
void rmsprop_step(const Arrays& arrays, const StepNumbers& numbers) {
  HWY_DYNAMIC_DISPATCH(rmsprop_step)(arrays, numbers);
}
void adagrad_step(const Arrays& arrays, const StepNumbers& numbers) {
  HWY_DYNAMIC_DISPATCH(adagrad_step)(arrays, numbers);
}
void adam_step(const Arrays& arrays, const StepNumbers& numbers) { HWY_DYNAMIC_DISPATCH(adam_step)(arrays, numbers); }

}  // namespace gyre::params::internal
#endif
