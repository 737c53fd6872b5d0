#include "workloads/training/task.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "gyre/models/dropout.h"

namespace gyre::training {

Task::Task(const models::Layers& layers, std::uint64_t seed, std::span<const Metric> metrics)
    : seed_(seed),
      metrics_(metrics),
      network_(layers, seed),
      parameters_(train::named_parameters(network_)),
      buffers_(train::named_buffers(network_)) {}

Task::Forward Task::forward_in_training(const data::Batch& batch, std::uint64_t step) {
  const auto [inputs, targets] = training_samples(batch, step);
  const models::DropoutKey dropout{seed_, step, batch.samples().first_position};
  network_.train();
  const at::Tensor answers = network_.forward(inputs, &dropout);
  return {loss_of(answers, targets, true), answers.detach(), targets};
}

std::vector<double> Task::train(const data::Batch& batch, std::uint64_t step, double scale) {
  const Forward forward = forward_in_training(batch, step);
  (forward.loss * scale).backward();
  count_classes(forward.targets);
  return metrics_of(forward);
}

/// training_samples() has refused targets of other classes.
void Task::count_classes(const at::Tensor& targets) {
  if (classes() == 0) return;
  trained_per_class_.resize(static_cast<std::size_t>(classes()));
  const std::span labels(targets.const_data_ptr<std::int64_t>(), static_cast<std::size_t>(targets.numel()));
  for (const std::int64_t label : labels) trained_per_class_[static_cast<std::size_t>(label)] += 1;
}

std::vector<double> Task::measure(const data::Batch& batch, std::uint64_t step) {
  const c10::NoGradGuard no_grad;
  return metrics_of(forward_in_training(batch, step));
}

std::vector<double> Task::evaluate(const data::Batch& batch) {
  const c10::NoGradGuard no_grad;
  const auto [inputs, targets] = test_samples(batch);
  network_.eval();
  const at::Tensor answers = network_.forward(inputs);
  return metrics_of({loss_of(answers, targets, false), answers, targets});
}

std::vector<double> Task::metrics_of(const Forward& forward) const {
  std::vector<double> metrics = {forward.loss.item<double>()};
  for (const double score : scores_of(forward.answers, forward.targets)) metrics.push_back(score);
  return metrics;
}

}  // namespace gyre::training
