#pragma once

#include <memory>
#include <span>
#include <vector>

#include "gyre/group/group.h"
#include "gyre/params/client.h"
#include "gyre/train/gradient_exchange.h"

namespace gyre::train {

/// Exchanges gradients through parameter servers: each worker sends its gradients and gets the average of all workers',
/// with the bits of EngineExchange on one host, and updates its own copy of the parameters. The group is that of
/// workers and servers, and outlives it. Parameters must be float32.
class ServerExchange final : public GradientExchange {
 public:
  ServerExchange(group::Group& group, const params::Layout& layout);

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
  NamedTensors parameters_;
  std::unique_ptr<params::Client> client_;
};

}  // namespace gyre::train
