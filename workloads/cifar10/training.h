#pragma once

#include "gyre/train/gradient_exchange.h"
#include "workloads/cifar10/options.h"
#include "workloads/training/trainer.h"

namespace gyre::cifar10 {

/// What the metrics of training::Outcome are.
enum Metric : std::size_t { kLoss, kAccuracy };

/// Trains as `options` say, together with the other ranks of `exchange`. Collective. Rank 0 prints, saves checkpoints
/// and writes TensorBoard files. Errors are those of its parts and say what to do.
training::Outcome run_training(Options options, train::GradientExchange& exchange);

}  // namespace gyre::cifar10
