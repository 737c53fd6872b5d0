#pragma once

#include <cstddef>

namespace gyre::params::internal {

/// Numbers of one step, in the precision of the parameters: what an option is after torch has rounded it to float32.
struct StepNumbers {
  float rate = 0;          ///< Taken off; for kAdam and kAdamw divided by the first bias correction.
  float weight_decay = 0;  ///< Added to the gradient.
  float shrink = 1;        ///< kAdamw: what the parameters are multiplied by first.
  float momentum = 0;
  float in_momentum = 1;  ///< What the gradient weighs in the momentum: 1 - dampening, or 1 in the first step.
  float alpha = 0;        ///< Of the squares: kRmsprop's alpha, kAdam's beta2 …
  float in_squares = 0;   ///< … and 1 minus it.
  float in_mean = 0;      ///< 1 - beta1, or 1 - alpha where kRmsprop is centered.
  float correction = 1;   ///< Square root of the second bias correction.
  float epsilon = 0;
};

/// One block: `count` values of each. Slots that a rule does not have are null.
struct Arrays {
  float* parameters;
  const float* gradients;
  float* first = nullptr;   ///< Momentum or mean.
  float* second = nullptr;  ///< Squares.
  float* third = nullptr;   ///< kAdam: the largest squares so far. kRmsprop: the mean gradient.
  std::size_t count;
};

// Each is one pass over the block. The same instruction order in vectors of any width and in the last, incomplete one,
// so that the bits depend neither on the processor's width nor on where a block begins. Pure but for the arrays.
void sgd_step(const Arrays& arrays, const StepNumbers& numbers, bool nesterov);
void rmsprop_step(const Arrays& arrays, const StepNumbers& numbers);
void adagrad_step(const Arrays& arrays, const StepNumbers& numbers);
void adam_step(const Arrays& arrays, const StepNumbers& numbers);

}  // namespace gyre::params::internal
