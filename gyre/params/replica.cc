#include "gyre/params/replica.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "gyre/base/error.h"

namespace gyre::params {
namespace {

std::vector<std::span<const float>> read_only(Client::Values values) { return {values.begin(), values.end()}; }

}  // namespace

void wait_here(const std::function<void()>& work) { work(); }

void check_sizes(std::span<const std::span<float>> tensors, std::span<const std::span<float>> expected) {
  if (tensors.size() != expected.size()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} tensors were given, not {} as at first", tensors.size(), expected.size()));
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].size() == expected[i].size()) continue;
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("tensor {} has {} values, not {} as at first", i, tensors[i].size(), expected[i].size()));
  }
}

HeldParameters::HeldParameters(Client& client, const ConsistencyOptions& consistency)
    : client_(client), memory_(client.memory()), announces_(consistency.backup_workers > 0) {
  for (const std::span<float> values : memory_) before_.emplace_back(values.size());
}

void HeldParameters::check(Parameters parameters) const { check_sizes(parameters, memory_); }

void HeldParameters::copy_memory_to(Parameters parameters) const {
  for (std::size_t i = 0; i < parameters.size(); ++i) std::ranges::copy(memory_[i], parameters[i].begin());
}

void HeldParameters::begin(Parameters parameters, const Wait& wait) {
  if (begun_) return;
  check(parameters);
  for (std::size_t i = 0; i < parameters.size(); ++i) std::ranges::copy(parameters[i], memory_[i].begin());
  wait([this] { client_.initialise(memory_); });
  copy_memory_to(parameters);
  begun_ = true;
}

bool HeldParameters::begin_step(Parameters parameters, const Wait& wait) {
  begin(parameters, wait);
  check(parameters);
  if (announces_) {
    wait([this] {
      admitted_ = client_.announce();
      if (!admitted_) client_.pull(memory_);
    });
    if (!admitted_) {
      ++dropped_;
      copy_memory_to(parameters);
      return false;
    }
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) std::ranges::copy(parameters[i], before_[i].begin());
  return true;
}

void HeldParameters::finish_step(Parameters parameters, const Wait& wait) {
  check(parameters);
  for (std::size_t i = 0; i < parameters.size(); ++i) {  // Servers subtract a gradient.
    std::ranges::transform(before_[i], parameters[i], memory_[i].begin(), std::minus<>());
  }
  // An announced gradient can still come too late if the worker has met others since.
  wait([this] {
    if (!client_.step(read_only(memory_), memory_).accepted) ++dropped_;
  });
  copy_memory_to(parameters);
}

void HeldParameters::settle(Parameters parameters, const Wait& wait) {
  begin(parameters, wait);
  check(parameters);
  wait([this] { client_.settle(memory_); });
  copy_memory_to(parameters);
}

std::vector<std::uint64_t> AveragedTensors::sizes(std::vector<std::uint64_t> tensor_values) {
  tensor_values.push_back(tensor_values.size());
  return tensor_values;
}

AveragedTensors::AveragedTensors(Client& client) : client_(client), memory_(client.memory()) {}

void AveragedTensors::set_present(std::size_t tensor, bool present) {
  memory_.back()[tensor] = present ? 1.0F : 0.0F;
  if (!present) std::ranges::fill(memory_[tensor], 0.0F);
}

void AveragedTensors::average() { client_.step(read_only(memory_), memory_); }

}  // namespace gyre::params
