#pragma once

#include <memory>
#include <span>
#include <vector>

#include "gyre/group/group.h"
#include "gyre/params/client.h"
#include "gyre/train/gradient_exchange.h"

namespace gyre::train {

/// What servers hold or average, by tensor. Error(kUnsupported) unless all are float32 on the CPU.
params::TrainingSetup setup_for(const NamedTensors& parameters, const params::Layout& layout);
/// The values of contiguous float32 tensors.
std::vector<std::span<float>> values_of(const NamedTensors& tensors);
/// From worker 0 to all. Error(kUnsupported) for a tensor that is not contiguous.
void broadcast_tensors(params::Client& client, const NamedTensors& tensors);

/// Exchanges gradients through parameter servers: each worker sends its gradients and gets the average of all workers',
/// with the bits of EngineExchange on one host, and updates its own copy of the parameters. The group is that of
/// workers and servers, and outlives it. Parameters must be float32.
class ServerExchange final : public GradientExchange {
 public:
  /// `consistency`: of kSync, without backup workers.
  ServerExchange(group::Group& group, const params::Layout& layout, const params::ConsistencyOptions& consistency = {});

  int rank() const override { return layout_.worker_of(group_.rank()); }
  /// Of the workers.
  int size() const override { return layout_.workers; }
  /// Error(kMismatch) where workers attach parameters of different sizes; kUnsupported for another type.
  void attach(const NamedTensors& parameters) override;
  void zero_gradients() override;
  void synchronize() override;
  void broadcast(const NamedTensors& tensors) override;
  void sum(std::span<double> values) override;

 private:
  params::Client& client();

  group::Group& group_;
  const params::Layout layout_;
  const params::ConsistencyOptions consistency_;
  NamedTensors parameters_;
  std::unique_ptr<params::Client> client_;
};

}  // namespace gyre::train
