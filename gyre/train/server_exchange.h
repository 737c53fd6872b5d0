#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "gyre/base/timeline.h"
#include "gyre/group/group.h"
#include "gyre/params/client.h"
#include "gyre/params/replica.h"
#include "gyre/train/gradient_exchange.h"
#include "gyre/train/gradient_place.h"

namespace gyre::train {

/// What all exchanges through parameter servers have in common. The group is that of workers and servers, and outlives
/// the exchange. Parameters must be float32 tensors on the CPU.
class WorkerExchange : public GradientExchange {
 public:
  int rank() const override { return layout_.worker_of(group_.rank()); }
  /// Of the workers.
  int size() const override { return layout_.workers; }
  /// Error(kMismatch) where workers attach parameters of different sizes; kUnsupported for another type.
  void attach(const NamedTensors& parameters) override;
  void zero_gradients() override;
  /// Error(kUnsupported) for a tensor that is not contiguous.
  void broadcast(const NamedTensors& tensors) override;
  void sum(std::span<double> values) override;
  void note_wait(std::string_view row, const data::BatchWait& wait) override;

 protected:
  /// `timeline`: shows the exchanges of this worker, if not null.
  WorkerExchange(group::Group& group, const params::Layout& layout, const params::ConsistencyOptions& consistency,
                 params::Rule rule, std::shared_ptr<Timeline> timeline);

  params::Client& client();
  const NamedTensors& parameters() const { return parameters_; }

 private:
  group::Group& group_;
  const params::Layout layout_;
  const params::ConsistencyOptions consistency_;
  const params::Rule rule_;
  const std::shared_ptr<Timeline> timeline_;
  NamedTensors parameters_;
  std::unique_ptr<params::Connection> connection_;  // Until attach().
  std::unique_ptr<params::Client> client_;
};

/// Exchanges gradients through parameter servers: each worker sends its gradients and gets the average of all workers',
/// with the bits of EngineExchange on one host, and updates its own copy of the parameters. From the first exchange on
/// gradients are in memory that servers of this host work on; a tensor that somebody keeps of one keeps its values, as
/// with EngineExchange. A gradient that no worker has stays undefined.
class ServerExchange final : public WorkerExchange {
 public:
  /// `consistency`: of kSync, without backup workers.
  ServerExchange(group::Group& group, const params::Layout& layout, const params::ConsistencyOptions& consistency = {},
                 std::shared_ptr<Timeline> timeline = nullptr);

  void attach(const NamedTensors& parameters) override;
  void synchronize() override;
  /// Waits until all workers are here. Error(kMismatch) on all if they have taken different numbers of steps.
  void settle() override;

 private:
  std::optional<params::AveragedTensors> averaged_;  // From attach() on.
  std::vector<GradientPlace> places_;                // By parameter, in the client's memory.
};

}  // namespace gyre::train
