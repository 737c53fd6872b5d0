#include "gyre/params/local_rounds.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "gyre/base/check.h"
#include "gyre/base/checksum.h"
#include "gyre/base/error.h"

namespace gyre::params {

LocalRounds::LocalRounds(std::uint64_t steps, OuterOptimizer outer, int workers,
                         std::vector<std::uint64_t> tensor_values)
    : steps_(steps), rule_(outer_rule(outer, workers)), tensors_(tensor_values.size()) {
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const auto count = static_cast<std::size_t>(tensor_values[i]);
    tensors_[i].common.resize(count);
    for (std::size_t slot = 0; slot < rule_.slots(); ++slot) {
      tensors_[i].slots.emplace_back(count, rule_.initial_slot_value(slot));
    }
  }
}

void LocalRounds::check(Values values) const {
  bool fits = values.size() == tensors_.size();
  for (std::size_t i = 0; fits && i < values.size(); ++i) fits = values[i].size() == tensors_[i].common.size();
  if (!fits) throw Error(ErrorCode::kInvalidArgument, "the tensors are not of the sizes that they had at first");
}

void LocalRounds::begin(Values parameters) {
  check(parameters);
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    std::ranges::copy(parameters[i], tensors_[i].common.begin());
    tensors_[i].stepped = false;
  }
  steps_alone_ = 0;
  begun_ = true;
}

std::array<float, LocalRounds::kChecks> LocalRounds::checks() const {
  constexpr int kBits = 8;
  std::uint64_t checksum = 0;
  for (const Tensor& tensor : tensors_) checksum = xxh3_64(std::as_bytes(std::span(tensor.common)), checksum);
  std::array<float, kChecks> parts{};
  for (float& part : parts) {
    part = static_cast<float>(checksum % (1U << kBits));
    checksum >>= kBits;
  }
  return parts;
}

bool LocalRounds::end_step(const std::vector<bool>& stepped) {
  GYRE_CHECK(stepped.size() == tensors_.size());
  for (std::size_t i = 0; i < tensors_.size(); ++i) tensors_[i].stepped = tensors_[i].stepped || stepped[i];
  return ++steps_alone_ >= steps_;  // More where a round has failed.
}

void LocalRounds::give(Values parameters, Values differences, std::span<float> notes, bool settles) {
  GYRE_CHECK(begun_);
  check(parameters);
  check(differences);
  GYRE_CHECK(notes.size() == this->notes());
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    std::ranges::transform(tensors_[i].common, parameters[i], differences[i].begin(), std::minus<>());
    const bool changed = std::ranges::any_of(differences[i], [](float value) { return value != 0; });
    notes[i] = tensors_[i].stepped || changed ? 1.0F : 0.0F;
  }
  notes[tensors_.size()] = steps_alone_ > 0 ? 1.0F : 0.0F;
  notes[tensors_.size() + 1] = settles ? 1.0F : 0.0F;
  std::ranges::copy(checks(), notes.last(kChecks).begin());
  if (steps_alone_ > 0) return;
  for (const std::span<float> difference : differences) std::ranges::fill(difference, 0.0F);
  std::ranges::fill(notes.first(tensors_.size()), 0.0F);
}

bool LocalRounds::take(Values differences, std::span<const float> notes, Values parameters) {
  check(parameters);
  check(differences);
  GYRE_CHECK(notes.size() == this->notes());
  if (!std::ranges::equal(notes.last(kChecks), checks())) {
    throw Error(ErrorCode::kMismatch,
                "the workers did not begin their steps with the same parameters, so they would stay apart: broadcast "
                "worker 0's before the first step, and load states between two rounds, on all workers");
  }
  const float contributing = notes[tensors_.size()];  // The share of the workers that contribute.
  if (contributing > 0) take_outer_step(differences, notes, contributing);
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    std::ranges::copy(tensors_[i].common, parameters[i].begin());
    tensors_[i].stepped = false;
  }
  steps_alone_ = 0;
  return notes[tensors_.size() + 1] == 1.0F;
}

void LocalRounds::take_outer_step(Values differences, std::span<const float> notes, float contributing) {
  ++outer_steps_;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (notes[i] == 0) continue;
    if (contributing < 1) {  // The average over those that contribute.
      for (float& value : differences[i]) value /= contributing;
    }
    std::vector<std::span<float>> slots(tensors_[i].slots.begin(), tensors_[i].slots.end());
    rule_.apply(tensors_[i].common, differences[i], slots, outer_steps_);
  }
}

std::vector<std::span<float>> LocalRounds::slot(std::size_t number) {
  std::vector<std::span<float>> slot;
  for (Tensor& tensor : tensors_) slot.emplace_back(tensor.slots.at(number));
  return slot;
}

}  // namespace gyre::params
