#pragma once

#include "gyre/train/gradient_exchange.h"
#include "workloads/resnet50/options.h"
#include "workloads/training/trainer.h"

namespace gyre::resnet50 {

/// What the metrics of training::Outcome are.
enum Metric : std::size_t { kLoss, kAccuracy, kTop5 };

/// Trains as `options` say, together with the other ranks of `exchange`. Collective. Rank 0 prints, saves checkpoints
/// and writes TensorBoard files below output_dir. Errors are those of its parts and say what to do.
training::Outcome run_training(Options options, train::GradientExchange& exchange);

/// Steps over one random batch, and images per second of rank 0 in the lines of Horovod's synthetic benchmark or of
/// tf_cnn_benchmarks. Collective. The outcome is empty: nothing is trained.
training::Outcome run_benchmark(const Options& options, train::GradientExchange& exchange);

}  // namespace gyre::resnet50
