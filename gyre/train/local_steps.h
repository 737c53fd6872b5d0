#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "gyre/params/consistency.h"
#include "gyre/params/local_rounds.h"
#include "gyre/train/gradient_exchange.h"

namespace gyre::train {

/// Workers take `steps` steps alone, and then agree on common parameters: see params::LocalRounds. Works over any
/// exchange that averages gradients, allreduce as well as parameter servers: what is averaged are the differences.
/// `inner` outlives it. Parameters must be contiguous float32 tensors on the CPU.
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
  /// Exchanges the steps since the last exchange, although they are fewer than `steps`, and takes part in the others'
  /// exchanges until all ranks are here.
  void settle() override;
  /// The outer optimizer's, and how often it has stepped.
  NamedTensors state() const override { return state_; }
  void broadcast(const NamedTensors& tensors) override { inner_.broadcast(tensors); }
  void sum(std::span<double> values) override { inner_.sum(values); }
  void note_wait(std::string_view row, const data::BatchWait& wait) override { inner_.note_wait(row, wait); }

 private:
  NamedTensors make_state();
  bool exchange(bool settles);

  GradientExchange& inner_;
  const std::uint64_t steps_;
  const params::OuterOptimizer outer_;
  NamedTensors parameters_;
  NamedTensors state_;
  NamedTensors carriers_;                      // Their "gradients" are the differences; the last one's are the notes.
  std::optional<params::LocalRounds> rounds_;  // From attach() on.
};

}  // namespace gyre::train
