#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "gyre/params/consistency.h"
#include "gyre/params/update_rule.h"
#include "gyre/train/gradient_exchange.h"

namespace gyre::train {

/// Workers take `steps` steps alone, each from the same parameters, and then agree on common ones again: the average of
/// what they have changed goes through an outer optimizer. Works over any exchange that averages gradients, allreduce
/// as well as parameter servers: what is averaged are the differences. Sources: see params::OuterOptimizer. `inner`
/// outlives it. Parameters must be contiguous float32 tensors on the CPU.
class LocalSteps final : public GradientExchange {
 public:
  /// `steps` >= 1.
  LocalSteps(GradientExchange& inner, std::uint64_t steps, params::OuterOptimizer outer);

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  void attach(const NamedTensors& parameters) override;
  void zero_gradients() override;
  void synchronize() override;
  void finish_step() override;
  bool replicas_are_equal() const override { return false; }
  /// Exchanges the steps since the last exchange, although they are fewer than `steps`.
  void settle() override;
  /// The outer optimizer's, and how often it has stepped.
  NamedTensors state() const override;
  void broadcast(const NamedTensors& tensors) override { inner_.broadcast(tensors); }
  void sum(std::span<double> values) override { inner_.sum(values); }
  void note_wait(std::string_view row, const data::BatchWait& wait) override { inner_.note_wait(row, wait); }

 private:
  void exchange();

  GradientExchange& inner_;
  const std::uint64_t steps_;
  const params::UpdateRule rule_;
  const double rate_;
  NamedTensors parameters_;
  NamedTensors common_;              // Copies, whose "gradients" are the differences.
  std::vector<NamedTensors> slots_;  // Of the outer optimizer, by parameter.
  at::Tensor exchanges_;             // One int64.
  std::uint64_t steps_alone_ = 0;
  bool begun_ = false;
};

}  // namespace gyre::train
