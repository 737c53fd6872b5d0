#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "gyre/train/tensors.h"

namespace gyre::data {
struct BatchWait;
}
namespace gyre::engine {
class Runtime;
}

namespace gyre::train {

/// What a training loop needs from the ranks it trains with, and nothing more. Every call but rank() and size() is
/// collective: all ranks make the same calls in the same order. Not thread-safe. When another rank fails, calls throw
/// the Error that says which.
class GradientExchange {
 public:
  virtual ~GradientExchange() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// Once, before the first backward: from now on the exchange may move `parameters`' gradients as soon as backward
  /// has computed them, and may decide where they live.
  virtual void attach(const NamedTensors& parameters) = 0;

  /// Before each backward: gradients are zero or undefined afterwards.
  virtual void zero_gradients() = 0;

  /// After each step's (only) backward: when it returns, every parameter's gradient is what the optimizer has to step
  /// with. That is the average over the ranks, the same bits everywhere, to which a rank that computed none contributed
  /// zeros (one that no rank has computed may stay undefined); or where replicas_are_equal() is not, the rank's own.
  virtual void synchronize() = 0;

  /// Immediately before each step of the optimizer. False where the gradients came too late for others: then the
  /// optimizer must not step, finish_step() is left out, and the parameters are those that the others have made.
  virtual bool begin_step() { return true; }

  /// After each step of the optimizer: where replicas_are_equal() is not, the ranks exchange their parameters.
  virtual void finish_step() {}

  /// Whether the ranks' parameters and optimizers are equal after every step. Otherwise settle() makes the parameters
  /// so, before an evaluation or a checkpoint, also where ranks have taken different numbers of steps.
  virtual bool replicas_are_equal() const { return true; }
  virtual void settle() {}

  /// What the exchange itself keeps from step to step, equal on all ranks after settle(), after attach(): belongs in a
  /// checkpoint. Shares its memory.
  virtual NamedTensors state() const { return {}; }

  /// Gives every rank rank 0's values, in place.
  virtual void broadcast(const NamedTensors& tensors) = 0;

  /// Adds up the ranks' values, in rank order, in place. For a handful of metrics.
  virtual void sum(std::span<double> values) = 0;

  /// What this rank has waited for a batch goes into the job's timeline, in the row `row`, where there is a timeline.
  /// Not collective.
  virtual void note_wait(std::string_view /*row*/, const data::BatchWait& /*wait*/) {}
};

/// A world of one rank: gradients stay where autograd puts them.
class LocalExchange final : public GradientExchange {
 public:
  /// `runtime`: whose timeline it is that note_wait() writes to, if any; outlives it.
  explicit LocalExchange(engine::Runtime* runtime = nullptr) : runtime_(runtime) {}

  int rank() const override { return 0; }
  int size() const override { return 1; }
  void attach(const NamedTensors& parameters) override { parameters_ = parameters; }
  void zero_gradients() override;
  void synchronize() override {}
  void broadcast(const NamedTensors& /*tensors*/) override {}
  void sum(std::span<double> /*values*/) override {}
  void note_wait(std::string_view row, const data::BatchWait& wait) override;

 private:
  engine::Runtime* runtime_;
  NamedTensors parameters_;
};

/// Every rank's `hash`, by rank; what replicas are compared with. Nothing for a rank that has died, where the others go
/// on without it. Collective.
std::vector<std::optional<std::uint64_t>> gather_hashes(GradientExchange& exchange, std::uint64_t hash);

/// Error(kMismatch) on every rank, naming those that differ from the first one, unless all `hash`es are equal.
/// Collective.
void check_replicas(GradientExchange& exchange, std::uint64_t hash, std::string_view what);

}  // namespace gyre::train
