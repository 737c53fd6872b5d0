#include "workloads/training/task.h"

#include <ATen/ATen.h>

#include "gyre/models/dropout.h"

namespace gyre::training {

Task::Task(const models::Layers& layers, std::uint64_t seed, std::span<const Metric> metrics)
    : seed_(seed),
      metrics_(metrics),
      network_(layers, seed),
      parameters_(train::named_parameters(network_)),
      buffers_(train::named_buffers(network_)) {}

std::vector<double> Task::train(const data::Batch& batch, std::uint64_t step, double scale) {
  const auto [inputs, targets] = training_samples(batch, step);
  const models::DropoutKey dropout{seed_, step, batch.samples().first_position};
  network_.train();
  const at::Tensor answers = network_.forward(inputs, &dropout);
  const at::Tensor loss = loss_of(answers, targets, true);
  (loss * scale).backward();
  return metrics_of(loss, answers.detach(), targets);
}

std::vector<double> Task::evaluate(const data::Batch& batch) {
  const auto [inputs, targets] = test_samples(batch);
  network_.eval();
  const at::Tensor answers = network_.forward(inputs);
  return metrics_of(loss_of(answers, targets, false), answers, targets);
}

std::vector<double> Task::metrics_of(const at::Tensor& loss, const at::Tensor& answers,
                                     const at::Tensor& targets) const {
  std::vector<double> metrics = {loss.item<double>()};
  for (const double score : scores_of(answers, targets)) metrics.push_back(score);
  return metrics;
}

}  // namespace gyre::training
