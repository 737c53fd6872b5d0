#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gyre/params/consistency.h"
#include "gyre/params/update_rule.h"

namespace gyre::params {

/// Workers take a number of steps alone, each from the same parameters, and then agree on common ones again: the
/// average of what they have changed goes through an outer optimizer. One such round:
///
///     if (rounds.end_step(stepped)) {               // Or at settle(), until take() is true.
///       rounds.give(parameters, differences, notes, is_settling);
///       …                                           // Averages all of them over the workers, in whatever way.
///       rounds.take(differences, notes, parameters);
///     }
///
/// A worker that has no steps left contributes nothing, but takes part in the rounds of the others until all settle, so
/// all end with the same parameters. A tensor that no worker has stepped on or changed is left alone. Sources: see
/// OuterOptimizer. Pure; not thread-safe. Spans are of the sizes given first: Error(kInvalidArgument).
class LocalRounds {
 public:
  using Values = std::span<const std::span<float>>;

  /// `steps` >= 1.
  LocalRounds(std::uint64_t steps, OuterOptimizer outer, int workers, std::vector<std::uint64_t> tensor_values);

  /// How many values the notes have.
  std::size_t notes() const { return tensors_.size() + 2 + kChecks; }

  /// Whether the tensors are still of their sizes.
  void check(Values values) const;

  /// Begins with these parameters, which are the same on all workers.
  void begin(Values parameters);
  bool has_begun() const { return begun_; }

  /// The optimizer has taken a step. `stepped`, by tensor: whether that had a gradient. Whether a round is due.
  bool end_step(const std::vector<bool>& stepped);

  /// Writes what is to be averaged: since the last round, the tensors' changes, negative as gradients are.
  void give(Values parameters, Values differences, std::span<float> notes, bool settles);

  /// From the averages, in which it works: the common parameters. Whether all workers settle, and so have the same ones
  /// and no step that is not in them. Error(kMismatch) on a worker at least if the workers did not begin with the same
  /// parameters, or have begun again with different ones: their changes would be averaged, and they would stay apart.
  bool take(Values differences, std::span<const float> notes, Values parameters);

  /// The outer optimizer's arrays, and how often it has stepped: equal on all workers between rounds. For checkpoints.
  std::size_t slots() const { return rule_.slots(); }
  /// By tensor.
  std::vector<std::span<float>> slot(std::size_t number);
  std::uint64_t& outer_steps() { return outer_steps_; }

 private:
  // Bytes of a checksum of the common parameters: whole numbers whose averages are exact, in bfloat16 too.
  static constexpr std::size_t kChecks = 4;

  struct Tensor {
    std::vector<float> common;
    std::vector<std::vector<float>> slots;
    bool stepped = false;
  };

  std::array<float, kChecks> checks() const;
  void take_outer_step(Values differences, std::span<const float> notes, float contributing);

  const std::uint64_t steps_;
  const UpdateRule rule_;
  std::vector<Tensor> tensors_;
  std::uint64_t outer_steps_ = 0;
  std::uint64_t steps_alone_ = 0;
  bool begun_ = false;
};

}  // namespace gyre::params
