#include "gyre/train/shared_parameters.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include "gyre/base/error.h"

namespace gyre::train {

SharedParameters::SharedParameters(group::Group& group, const params::Layout& layout,
                                   const params::ConsistencyOptions& consistency, std::shared_ptr<Timeline> timeline)
    : WorkerExchange(group, layout, consistency, params::Rule::kSgd, std::move(timeline)) {}

void SharedParameters::attach(const NamedTensors& parameters) {
  for (const auto& [name, tensor] : parameters) {
    if (!tensor.is_contiguous()) {
      throw Error(ErrorCode::kUnsupported, fmt::format("'{}' must be a contiguous tensor", name));
    }
  }
  WorkerExchange::attach(parameters);
}

void SharedParameters::note_common() {
  const std::vector<std::span<float>> values = values_of(parameters());
  common_.resize(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) common_[i].assign(values[i].begin(), values[i].end());
}

void SharedParameters::synchronize() {
  if (begun_) return;
  begun_ = true;
  client().initialise(values_of(parameters()));
  note_common();
}

void SharedParameters::finish_step() {
  const std::vector<std::span<float>> values = values_of(parameters());
  const params::Client::Values memory = client().memory();
  for (std::size_t i = 0; i < values.size(); ++i) {  // Servers subtract a gradient.
    std::ranges::transform(common_[i], values[i], memory[i].begin(), std::minus<>());
  }
  const std::vector<std::span<const float>> differences(memory.begin(), memory.end());
  if (!client().step(differences, memory, 1).accepted) ++dropped_;
  for (std::size_t i = 0; i < values.size(); ++i) std::ranges::copy(memory[i], values[i].begin());
  note_common();
}

void SharedParameters::settle() {
  if (!begun_) return;
  std::array<double, 1> here = {1};
  client().sum(here);
  client().pull(values_of(parameters()));
  note_common();
}

}  // namespace gyre::train
