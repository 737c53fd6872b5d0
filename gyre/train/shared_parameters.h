#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "gyre/train/server_exchange.h"

namespace gyre::train {

/// The parameters are those of the servers. In a step each worker's own optimizer changes its copy, and what it has
/// changed goes to the servers: they add it to their parameters, or the average of it where they wait for several
/// workers, and answer with the result. So any optimizer works; its state is each worker's own. Parameters must be
/// contiguous.
class SharedParameters final : public WorkerExchange {
 public:
  SharedParameters(group::Group& group, const params::Layout& layout, const params::ConsistencyOptions& consistency,
                   std::shared_ptr<Timeline> timeline = nullptr);

  void attach(const NamedTensors& parameters) override;
  /// The gradients stay this worker's. The first call makes worker 0's parameters everybody's.
  void synchronize() override;
  void finish_step() override;
  bool replicas_are_equal() const override { return false; }
  /// When all workers are here, they get the servers' parameters.
  void settle() override;

  /// Steps that came too late and were dropped.
  std::uint64_t dropped_steps() const { return dropped_; }

 private:
  void note_common();

  std::vector<std::vector<float>> common_;  // What the servers answered last, by parameter.
  std::uint64_t dropped_ = 0;
  bool begun_ = false;
};

}  // namespace gyre::train
