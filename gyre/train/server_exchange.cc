#include "gyre/train/server_exchange.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
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
  params::TrainingSetup setup{.shards = {.servers = layout.servers}};
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
    : group_(group),
      layout_(layout),
      consistency_(consistency),
      rule_(rule),
      timeline_(std::move(timeline)),
      connection_(std::make_unique<params::Connection>(group, layout)) {}

params::Client& WorkerExchange::client() {
  if (!client_) throw Error(ErrorCode::kInvalidArgument, "attach the parameters before the first exchange");
  return *client_;
}

void WorkerExchange::attach(const NamedTensors& parameters) {
  if (client_) throw Error(ErrorCode::kInvalidArgument, "an exchange is attached to parameters once");
  params::TrainingSetup setup = setup_for(parameters, layout_);
  std::vector<std::string> names;
  for (const NamedTensor& parameter : parameters) names.push_back(parameter.name);
  setup.names = params::checksum_of_names(names);
  if (rule_ == params::Rule::kAverage) setup.tensor_values = params::AveragedTensors::sizes(setup.tensor_values);
  setup.groups.front().rule = rule_;
  setup.consistency = consistency_;
  client_ = std::make_unique<params::Client>(std::move(connection_), std::move(setup));
  parameters_ = parameters;
  if (!timeline_) return;
  if (rule_ == params::Rule::kAverage) names.emplace_back("which gradients there are");
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

void ServerExchange::attach(const NamedTensors& parameters) {
  WorkerExchange::attach(parameters);
  averaged_.emplace(client());
  const params::Client::Values memory = averaged_->memory();
  for (std::size_t i = 0; i < memory.size(); ++i) {
    places_.emplace_back(std::as_writable_bytes(memory[i]), parameters[i].tensor);
  }
}

void ServerExchange::synchronize() {
  client();  // Checks that there is one.
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < places_.size(); ++i) {
    at::Tensor& gradient = parameters()[i].tensor.mutable_grad();
    GradientPlace& place = places_[i];
    if (!gradient.defined() || gradient.data_ptr() != place.tensor().data_ptr()) place.free();
    averaged_->set_present(i, gradient.defined());
    if (gradient.defined() && gradient.data_ptr() != place.tensor().data_ptr()) place.tensor().copy_(gradient);
  }
  averaged_->average();
  for (std::size_t i = 0; i < places_.size(); ++i) {
    if (averaged_->is_present(i)) {
      parameters()[i].tensor.mutable_grad() = places_[i].tensor();
    } else {
      parameters()[i].tensor.mutable_grad().reset();
    }
  }
}

void ServerExchange::settle() { client().settle({}); }

}  // namespace gyre::train
