#include "workloads/training/run_position.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "gyre/base/check.h"
#include "gyre/base/error.h"

namespace gyre::training {

void RunPosition::pass_step() {
  const std::uint64_t passed = std::min(step_size_, epoch_size_ - position_);
  position_ += passed;
  samples_ += passed;
  ++step_;
  ++step_in_epoch_;
}

void RunPosition::leave_out(std::uint64_t positions) {
  GYRE_CHECK(positions <= samples_);
  samples_ -= positions;
}

void RunPosition::pass_epoch() {
  ++epoch_;
  position_ = step_in_epoch_ = 0;
}

std::string RunPosition::in_step() const {
  return fmt::format("in step {} of epoch {}", step_in_epoch_ + 1, epoch_ + 1);
}

std::string RunPosition::after_step() const {
  return fmt::format("after step {} of epoch {}", step_in_epoch_, epoch_ + 1);
}

Progress RunPosition::progress() const {
  return {{"epoch", static_cast<double>(epoch_)},
          {"step", static_cast<double>(step_)},
          {"samples", static_cast<double>(samples_)},
          {"here/position", static_cast<double>(position_)}};
}

void RunPosition::restore(const Progress& progress, std::string_view samples) {
  const auto count = [&](std::string_view name) { return static_cast<std::uint64_t>(value_of(progress, name)); };
  epoch_ = count("epoch");
  step_ = first_step_ = count("step");
  samples_ = count("samples");
  position_ = count("here/position");
  if (position_ > epoch_size_) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("the checkpoint is at position {} of an epoch of {} {}", position_, epoch_size_, samples));
  }
  step_in_epoch_ = position_ / step_size_;
}

double value_of(const Progress& progress, std::string_view name) {
  const auto found = std::ranges::find(progress, name, &Progress::value_type::first);
  if (found == progress.end()) {
    throw Error(ErrorCode::kCorruptData, fmt::format("the checkpoint does not say its {}", name));
  }
  return found->second;
}

}  // namespace gyre::training
