#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gyre/params/client.h"
#include "gyre/params/replica.h"

namespace gyre::params {

/// A worker's copy of parameters that the servers hold and step: their optimizer is the job's only one. Workers send
/// gradients, and take the servers' parameters; of tables (nn.Embedding(sparse=True)) the rows that anybody has
/// changed. What a program changes by itself stays this worker's until the next answer.
///
/// Spans are as in HeldParameters; `tables` are whole ones, row by row. Not thread-safe; the client outlives it.
class ServedParameters {
 public:
  using Values = Client::Values;

  ServedParameters(Client& client, const TrainingSetup& setup);

  /// The first call makes the first worker's parameters everybody's; later ones do nothing. Collective.
  void begin(Values parameters, Values tables, const Wait& wait = wait_here);
  /// The next begin() does it again: the program has changed the parameters, on all workers.
  void begin_again() { begun_ = false; }
  /// … and with it this becomes the optimizer's state, of the tensors and then the tables. Error(kInvalidArgument)
  /// unless it is of their sizes.
  void load_state(std::vector<TensorState> states);
  /// The servers' optimizer as it is; before the parameters are common, what has been loaded, if anything.
  std::vector<TensorState> state(const Wait& wait = wait_here);

  struct Gradients {
    std::vector<std::span<const float>> tensors;
    std::vector<Rows> rows;     ///< By table.
    std::vector<bool> present;  ///< By tensor, and then by table; the others' are not read.
  };

  /// One step with these gradients and options by group. False where they came too late and were dropped. Either way
  /// parameters and tables are the servers' now. Error(kInvalidArgument), before anything is sent, for gradients that
  /// do not fit, rows that there are not, and options that cannot follow those before.
  bool step(Gradients gradients, std::vector<UpdateOptions> options, Values parameters, Values tables,
            const Wait& wait = wait_here);

  /// When all workers are here, they get the servers' values, the same ones. Collective.
  void settle(Values parameters, Values tables, const Wait& wait = wait_here);

  /// Steps of this worker that came too late.
  std::uint64_t dropped_steps() const { return dropped_; }

 private:
  void check(Values parameters, Values tables) const;
  void check(const Gradients& gradients) const;
  std::vector<std::vector<float>> copies_of(Values tables) const;
  void give(Values parameters, Values tables, const std::vector<std::vector<float>>& own) const;
  void give_changed_rows(Values tables) const;

  Client& client_;
  const TrainingSetup setup_;
  const Values memory_;
  std::vector<TensorState> loaded_;  // Until begin().
  std::uint64_t dropped_ = 0;
  bool begun_ = false;
};

}  // namespace gyre::params
