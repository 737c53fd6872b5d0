#include "gyre/train/server_exchange.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/collectives/exchange_cost.h"
#include "gyre/train/data_timeline.h"

namespace gyre::train {
namespace {

params::TrainingSetup setup_for(const NamedTensors& parameters, const params::Layout& layout) {
  params::TrainingSetup setup{
      .tensor_values = {}, .shards = {.servers = layout.servers}, .update = {}, .consistency = {}};
  for (const auto& [name, tensor] : parameters) {
    if (!tensor.is_cpu() || tensor.scalar_type() != at::kFloat) {
      throw Error(ErrorCode::kUnsupported,
                  fmt::format("'{}' is of type {}; parameter servers take float32 tensors on the CPU", name,
                              c10::toString(tensor.scalar_type())));
    }
    setup.tensor_values.push_back(static_cast<std::uint64_t>(tensor.numel()));
  }
  const auto values = std::accumulate(setup.tensor_values.begin(), setup.tensor_values.end(), std::uint64_t{0});
  setup.shards.values_per_block =
      collectives::server_block_bytes(values * sizeof(float), layout.servers) / sizeof(float);
  return setup;
}

}  // namespace

WorkerExchange::WorkerExchange(group::Group& group, const params::Layout& layout,
                               const params::ConsistencyOptions& consistency, params::Rule rule,
                               std::shared_ptr<Timeline> timeline)
    : group_(group), layout_(layout), consistency_(consistency), rule_(rule), timeline_(std::move(timeline)) {}

params::Client& WorkerExchange::client() {
  if (!client_) throw Error(ErrorCode::kInvalidArgument, "attach the parameters before the first exchange");
  return *client_;
}

void WorkerExchange::attach(const NamedTensors& parameters) {
  if (client_) throw Error(ErrorCode::kInvalidArgument, "an exchange is attached to parameters once");
  params::TrainingSetup setup = setup_for(parameters, layout_);
  setup.update.rule = rule_;
  setup.consistency = consistency_;
  client_ = std::make_unique<params::Client>(group_, layout_, std::move(setup));
  parameters_ = parameters;
  if (!timeline_) return;
  std::vector<std::string> names;
  for (const NamedTensor& parameter : parameters) names.push_back(parameter.name);
  client_->trace(timeline_, names);
}

void WorkerExchange::zero_gradients() {
  for (const NamedTensor& parameter : parameters_) parameter.tensor.mutable_grad().reset();
}

void WorkerExchange::broadcast(const NamedTensors& tensors) {
  for (const auto& [name, tensor] : tensors) {
    if (!tensor.is_contiguous()) {
      throw Error(ErrorCode::kUnsupported, fmt::format("'{}' must be a contiguous tensor", name));
    }
    client().broadcast({static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()});
  }
}

void WorkerExchange::sum(std::span<double> values) { client().sum(values); }

void WorkerExchange::note_wait(std::string_view row, const data::BatchWait& wait) {
  if (timeline_) add_wait_to_timeline(*timeline_, row, wait);
}

ServerExchange::ServerExchange(group::Group& group, const params::Layout& layout,
                               const params::ConsistencyOptions& consistency, std::shared_ptr<Timeline> timeline)
    : WorkerExchange(group, layout, consistency, params::Rule::kAverage, std::move(timeline)) {}

void ServerExchange::synchronize() {
  std::vector<std::span<float>> results;
  for (const NamedTensor& parameter : parameters()) {
    at::Tensor& gradient = parameter.tensor.mutable_grad();
    // A parameter that this worker did not use has one on others.
    gradient = gradient.defined() ? gradient.detach().contiguous() : at::zeros(parameter.tensor.sizes());
    results.emplace_back(gradient.mutable_data_ptr<float>(), static_cast<std::size_t>(gradient.numel()));
  }
  const std::vector<std::span<const float>> gradients(results.begin(), results.end());
  client().step(gradients, results, 0);
}

}  // namespace gyre::train
