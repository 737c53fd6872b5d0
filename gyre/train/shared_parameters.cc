#include "gyre/train/shared_parameters.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "gyre/base/error.h"
#include "gyre/train/server_exchange.h"

namespace gyre::train {

SharedParameters::SharedParameters(group::Group& group, const params::Layout& layout,
                                   const params::ConsistencyOptions& consistency)
    : group_(group), layout_(layout), consistency_(consistency) {}

params::Client& SharedParameters::client() {
  if (!client_) throw Error(ErrorCode::kInvalidArgument, "attach the parameters before the first exchange");
  return *client_;
}

void SharedParameters::attach(const NamedTensors& parameters) {
  if (client_) throw Error(ErrorCode::kInvalidArgument, "an exchange is attached to parameters once");
  params::TrainingSetup setup = setup_for(parameters, layout_);
  for (const auto& [name, tensor] : parameters) {
    if (!tensor.is_contiguous()) {
      throw Error(ErrorCode::kUnsupported, fmt::format("'{}' must be a contiguous tensor", name));
    }
  }
  setup.consistency = consistency_;
  client_ = std::make_unique<params::Client>(group_, layout_, std::move(setup));
  parameters_ = parameters;
}

void SharedParameters::zero_gradients() {
  for (const NamedTensor& parameter : parameters_) parameter.tensor.mutable_grad().reset();
}

void SharedParameters::note_common() {
  const std::vector<std::span<float>> values = values_of(parameters_);
  common_.resize(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) common_[i].assign(values[i].begin(), values[i].end());
}

void SharedParameters::synchronize() {
  if (begun_) return;
  begun_ = true;
  client().initialise(values_of(parameters_));
  note_common();
}

void SharedParameters::finish_step() {
  const std::vector<std::span<float>> values = values_of(parameters_);
  for (std::size_t i = 0; i < values.size(); ++i) {  // Servers subtract a gradient.
    std::ranges::transform(common_[i], values[i], common_[i].begin(), std::minus<>());
  }
  const std::vector<std::span<const float>> differences(common_.begin(), common_.end());
  if (!client().step(differences, values, 1).accepted) ++dropped_;
  note_common();
}

void SharedParameters::settle() {
  if (!begun_) return;
  std::array<double, 1> here = {1};
  client().sum(here);
  client().pull(values_of(parameters_));
  note_common();
}

void SharedParameters::broadcast(const NamedTensors& tensors) { broadcast_tensors(client(), tensors); }

void SharedParameters::sum(std::span<double> values) { client().sum(values); }

}  // namespace gyre::train
