#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "gyre/group/group.h"
#include "gyre/params/client.h"
#include "gyre/train/gradient_exchange.h"

namespace gyre::train {

/// The parameters are those of the servers. In a step each worker's own optimizer changes its copy, and what it has
/// changed goes to the servers: they add it to their parameters, or the average of it where they wait for several
/// workers, and answer with the result. So any optimizer works; its state is each worker's own. The group is that of
/// workers and servers, and outlives it. Parameters must be contiguous float32 tensors on the CPU.
class SharedParameters final : public GradientExchange {
 public:
  SharedParameters(group::Group& group, const params::Layout& layout, const params::ConsistencyOptions& consistency);

  int rank() const override { return layout_.worker_of(group_.rank()); }
  /// Of the workers.
  int size() const override { return layout_.workers; }
  /// Error(kMismatch) where workers attach parameters of different sizes; kUnsupported for another type.
  void attach(const NamedTensors& parameters) override;
  void zero_gradients() override;
  /// The gradients stay this worker's. The first call makes worker 0's parameters everybody's.
  void synchronize() override;
  void finish_step() override;
  bool replicas_are_equal() const override { return false; }
  /// When all workers are here, they get the servers' parameters.
  void settle() override;
  void broadcast(const NamedTensors& tensors) override;
  void sum(std::span<double> values) override;

  /// Steps that came too late and were dropped.
  std::uint64_t dropped_steps() const { return dropped_; }

 private:
  params::Client& client();
  void note_common();

  group::Group& group_;
  const params::Layout layout_;
  const params::ConsistencyOptions consistency_;
  NamedTensors parameters_;
  std::vector<std::vector<float>> common_;  // What the servers answered last, by parameter.
  std::uint64_t dropped_ = 0;
  bool begun_ = false;
  std::unique_ptr<params::Client> client_;
};

}  // namespace gyre::train
