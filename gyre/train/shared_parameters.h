#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "gyre/params/replica.h"
#include "gyre/train/server_exchange.h"

namespace gyre::train {

/// The parameters are those of the servers: see params::HeldParameters. Parameters must be contiguous.
class SharedParameters final : public WorkerExchange {
 public:
  SharedParameters(group::Group& group, const params::Layout& layout, const params::ConsistencyOptions& consistency,
                   std::shared_ptr<Timeline> timeline = nullptr);

  void attach(const NamedTensors& parameters) override;
  /// The gradients stay this worker's. The first call makes the first worker's parameters everybody's.
  void synchronize() override;
  bool begin_step() override;
  void finish_step() override;
  bool replicas_are_equal() const override { return false; }
  void settle() override;

  /// Steps that came too late and were dropped.
  std::uint64_t dropped_steps() const { return held_ ? held_->dropped_steps() : 0; }

 private:
  const params::ConsistencyOptions consistency_;
  std::optional<params::HeldParameters> held_;  // From attach() on.
};

}  // namespace gyre::train
