#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "gyre/params/client.h"

namespace gyre::params {

/// How a call of this file waits for servers: runs the work, and returns when it is done or throws what it throws. The
/// work uses nothing but the object whose call it is, so a caller that gives up may let it run on.
using Wait = std::function<void(std::function<void()> work)>;
void wait_here(const std::function<void()>& work);

/// A worker's copy of parameters that the servers hold: in async, bounded and backup training. The worker's own
/// optimizer changes the copy, and what its step has changed goes to the servers: they add it to their parameters, or
/// with backup workers the average of it, and answer with the result, which becomes the copy. So any optimizer works;
/// its state is each worker's own.
///
///     if (held.begin_step(parameters)) {
///       optimizer.step();
///       held.finish_step(parameters);
///     }
///
/// Nothing but the optimizer's step is sent: what the program changes by itself stays this worker's until the next
/// answer. Parameters are spans, one for each tensor of the client's setup, of its size: Error(kInvalidArgument)
/// otherwise. Not thread-safe; the client outlives it.
class HeldParameters {
 public:
  using Parameters = Client::Values;

  HeldParameters(Client& client, const ConsistencyOptions& consistency);

  /// The first call makes the first worker's parameters everybody's; later ones do nothing. Collective.
  void begin(Parameters parameters, const Wait& wait = wait_here);

  /// The next begin() does it again: the program has changed the parameters, on all workers.
  void begin_again() { begun_ = false; }

  /// begin(), and notes the parameters from which the optimizer steps: to be called immediately before that, when the
  /// gradients are there. False with backup workers where these come too late: then the optimizer must not step, and
  /// `parameters` are what the servers have now.
  bool begin_step(Parameters parameters, const Wait& wait = wait_here);

  /// After the optimizer's step. An error of the optimizer in between leaves the step out.
  void finish_step(Parameters parameters, const Wait& wait = wait_here);

  /// When all workers are here, they get the servers' values, the same ones. Collective.
  void settle(Parameters parameters, const Wait& wait = wait_here);

  /// Steps of this worker that came too late.
  std::uint64_t dropped_steps() const { return dropped_; }

 private:
  void check(Parameters parameters) const;
  void copy_memory_to(Parameters parameters) const;

  Client& client_;
  const Client::Values memory_;
  const bool announces_;
  std::vector<std::vector<float>> before_;  // The optimizer's step.
  std::uint64_t dropped_ = 0;
  bool begun_ = false;
  bool admitted_ = false;
};

/// Averages of tensors over the workers in sync training, where a worker may lack some of them in a step: it counts as
/// if it had zeros, and a tensor that all lack stays lacking. What is averaged lies in memory(). The client's setup is
/// of Rule::kAverage and has sizes(). Not thread-safe; the client outlives it.
class AveragedTensors {
 public:
  /// Of the setup, for tensors of these sizes: there is one more, which says who has which.
  static std::vector<std::uint64_t> sizes(std::vector<std::uint64_t> tensor_values);

  explicit AveragedTensors(Client& client);

  /// By tensor.
  Client::Values memory() const { return memory_.first(memory_.size() - 1); }
  /// Whether this worker has the tensor; false writes zeros to memory. For each tensor, before average().
  void set_present(std::size_t tensor, bool present);
  void average();
  /// Whether any worker had it, after average().
  bool is_present(std::size_t tensor) const { return memory_.back()[tensor] > 0; }

 private:
  Client& client_;
  const Client::Values memory_;
};

/// Error(kInvalidArgument) that says which tensor is not of its size.
void check_sizes(std::span<const std::span<float>> tensors, std::span<const std::span<float>> expected);

}  // namespace gyre::params
