#pragma once

#include "gyre/train/gradient_exchange.h"
#include "workloads/cosmoflow/recipe.h"
#include "workloads/training/trainer.h"

namespace gyre::cosmoflow {

/// What the metrics of training::Outcome are: the mean squared error, which is the loss without the L2 penalty, the
/// mean absolute error, and that of answering 0 everywhere, which learns nothing.
enum Metric : std::size_t { kLoss, kMae, kMaeOfZeros };

/// Trains as `recipe` says, together with the other ranks of `exchange`. Collective. Rank 0 prints, saves checkpoints
/// and writes TensorBoard files below output_dir. Errors are those of its parts and say what to do.
training::Outcome run_training(Recipe recipe, train::GradientExchange& exchange);

}  // namespace gyre::cosmoflow
