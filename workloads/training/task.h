#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "gyre/data/loader.h"
#include "gyre/models/layer.h"
#include "gyre/models/network.h"
#include "gyre/train/tensors.h"
#include "workloads/training/metric.h"

namespace gyre::training {

/// What is trained: a network, and what it makes of a batch, gradients and sums of metrics. Programs say what a batch
/// holds, and what is lost and measured. Not thread-safe.
class Task {
 public:
  /// `seed`: of the first weights and of dropout. `metrics`, the first of which is the loss, outlive this.
  Task(const models::Layers& layers, std::uint64_t seed, std::span<const Metric> metrics);
  virtual ~Task() = default;
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;

  /// In the order of the forward pass.
  const train::NamedTensors& parameters() const { return parameters_; }
  /// Running statistics and the like, which have no gradients: rank 0's are saved, and used by all to evaluate.
  const train::NamedTensors& buffers() const { return buffers_; }
  std::span<const Metric> metrics() const { return metrics_; }
  /// Which a network tells apart; 0 for one that does not.
  virtual std::int64_t classes() const { return 0; }
  /// How many samples of each class train() has had.
  const std::vector<double>& trained_per_class() const { return trained_per_class_; }

  /// Forward and backward over the samples of `batch` that count. The gradients are those of the sum of the samples'
  /// losses times `scale`. Returns the metrics, summed over the samples. `step` counts from 0 over the whole run.
  std::vector<double> train(const data::Batch& batch, std::uint64_t step, double scale);
  /// The forward pass of train() alone, with its metrics: changes buffers as that does.
  std::vector<double> measure(const data::Batch& batch, std::uint64_t step);
  /// The metrics alone, as evaluations have them, summed over the samples that count.
  std::vector<double> evaluate(const data::Batch& batch);

 protected:
  /// Those of a batch that count; they may lie in its memory.
  struct Samples {
    at::Tensor inputs;
    at::Tensor targets;
  };

 private:
  /// Changed at random where the program does that. Error(kInvalidArgument) for a target that the network cannot
  /// answer.
  virtual Samples training_samples(const data::Batch& batch, std::uint64_t step) const = 0;
  virtual Samples test_samples(const data::Batch& batch) const = 0;
  /// Summed over the samples.
  virtual at::Tensor loss_of(const at::Tensor& answers, const at::Tensor& targets, bool training) const = 0;
  /// The metrics besides the loss, summed over the samples.
  virtual std::vector<double> scores_of(const at::Tensor& answers, const at::Tensor& targets) const = 0;

  struct Forward {
    at::Tensor loss;
    at::Tensor answers;
    at::Tensor targets;
  };
  Forward forward_in_training(const data::Batch& batch, std::uint64_t step);
  std::vector<double> metrics_of(const Forward& forward) const;
  void count_classes(const at::Tensor& targets);

  const std::uint64_t seed_;
  const std::span<const Metric> metrics_;
  models::Network network_;
  const train::NamedTensors parameters_;
  const train::NamedTensors buffers_;
  std::vector<double> trained_per_class_;
};

}  // namespace gyre::training
