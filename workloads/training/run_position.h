#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "workloads/training/run_state.h"

namespace gyre::training {

/// Where a run stands in its epochs' orders of samples, and what it has counted so far. A value.
class RunPosition {
 public:
  /// Positions of an epoch's order: that one step takes, and that there are.
  RunPosition(std::uint64_t step_size, std::uint64_t epoch_size) : step_size_(step_size), epoch_size_(epoch_size) {}

  /// That is being trained, or comes next; also how many are finished.
  std::uint64_t epoch() const { return epoch_; }
  /// In the epoch's order, of the sample that comes next.
  std::uint64_t position() const { return position_; }
  /// Positions that the run has passed, but for those that were left out: the number of its checkpoint.
  std::uint64_t samples() const { return samples_; }
  /// Of the run, that comes next; also how many are done.
  std::uint64_t step() const { return step_; }
  /// That comes next, as if the whole epoch had been trained in steps of this size.
  std::uint64_t step_in_epoch() const { return step_in_epoch_; }
  /// Steps of this size into the epoch: not a whole number where others were of another size.
  double steps_into_epoch() const { return static_cast<double>(position_) / static_cast<double>(step_size_); }
  bool is_between_epochs() const { return epoch_ > 0 && position_ == 0; }
  /// Since the start of the process, which may have continued a run.
  bool has_stepped() const { return step_ > first_step_; }

  /// Those that come next: where another number of ranks shares the work.
  void set_step_size(std::uint64_t positions) { step_size_ = positions; }
  void pass_step();
  /// Of the positions that have been passed, nobody has trained so many, or nobody knows who has.
  void leave_out(std::uint64_t positions);
  void pass_epoch();

  /// "in step 3 of epoch 2", of the step that comes next; both count from 1.
  std::string in_step() const;
  /// "after step 2 of epoch 2", of the last one.
  std::string after_step() const;

  Progress progress() const;
  /// From what progress() once was, in steps of any size. Error(kCorruptData) for a position behind the epoch's end.
  /// `samples`: what they are called in messages.
  void restore(const Progress& progress, std::string_view samples);

 private:
  std::uint64_t step_size_;
  std::uint64_t epoch_size_;
  std::uint64_t epoch_ = 0;
  std::uint64_t position_ = 0;
  std::uint64_t samples_ = 0;
  std::uint64_t step_ = 0;
  std::uint64_t first_step_ = 0;
  std::uint64_t step_in_epoch_ = 0;
};

/// Error(kCorruptData) where it has no value of this name.
double value_of(const Progress& progress, std::string_view name);

}  // namespace gyre::training
