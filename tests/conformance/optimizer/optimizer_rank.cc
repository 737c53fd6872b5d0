// One rank of the conformance test of optimizers (optimizer_table_test.py): plays the cases of the file that is its
// first argument with gyre::train::DistributedOptimizer, as tests/support/optimizer_rank.py does in Python, and writes
// what it finds after each step to the second one.
#include <fmt/format.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gyre/base/bytes.h"
#include "gyre/base/file.h"
#include "gyre/train/distributed_optimizer.h"

namespace {

using namespace gyre;
using nlohmann::json;

at::Tensor tensor_of(const json& values, const json& shape) {
  const auto sizes = shape.get<std::vector<std::int64_t>>();
  return at::tensor(values.get<std::vector<double>>(), at::kFloat).reshape(sizes);
}

json values_of(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.detach().contiguous().view(-1).to(at::kFloat);
  return std::vector<float>(flat.const_data_ptr<float>(), flat.const_data_ptr<float>() + flat.numel());
}

std::unique_ptr<torch::optim::Optimizer> make_optimizer(const json& chosen, const std::vector<at::Tensor>& parameters) {
  using namespace torch::optim;
  const std::string name = chosen.at("class");
  const double rate = chosen.at("lr");
  const double momentum = chosen.value("momentum", 0.0);
  const double decay = chosen.value("weight_decay", 0.0);
  if (name == "Adam") return std::make_unique<Adam>(parameters, AdamOptions(rate).weight_decay(decay));
  if (name == "AdamW") return std::make_unique<AdamW>(parameters, AdamWOptions(rate).weight_decay(decay));
  if (name == "Adagrad") return std::make_unique<Adagrad>(parameters, AdagradOptions(rate).weight_decay(decay));
  if (name == "RMSprop") {
    return std::make_unique<RMSprop>(parameters, RMSpropOptions(rate).momentum(momentum).weight_decay(decay));
  }
  if (name == "LBFGS") return std::make_unique<LBFGS>(parameters, LBFGSOptions(rate).max_iter(3));
  return std::make_unique<SGD>(parameters, SGDOptions(rate).momentum(momentum).weight_decay(decay));
}

class Case {
 public:
  Case(const json& chosen, engine::Runtime& runtime)
      : chosen_(chosen), rank_(static_cast<std::size_t>(runtime.rank())) {
    const json& shapes = chosen.at("shapes");
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      at::Tensor parameter = tensor_of(chosen.at("first").at(rank_).at(i), shapes[i]);
      if (parameter.dim() == 4) parameter = parameter.contiguous(at::MemoryFormat::ChannelsLast);
      parameters_.push_back(parameter.set_requires_grad(true));
      tensors_.push_back({fmt::format("p{}", i), parameters_.back()});
    }
    for (const json& i : chosen.at("frozen")) parameters_.at(i).set_requires_grad(false);
    tensors_.push_back({"tied", parameters_.front()});
    buffer_ = at::full({2}, static_cast<double>(rank_ + 1));
    count_ = at::full({}, static_cast<std::int64_t>(rank_ + 7), at::kLong);
    tensors_.push_back({"buffer", buffer_});
    tensors_.push_back({"count", count_});
    inner_ = make_optimizer(chosen.at("optimizer"), parameters_);
    if (rank_ == 0) resume();
    optimizer_ = std::make_unique<train::DistributedOptimizer>(
        *inner_, tensors_, runtime, train::ExchangeOptions{.backward_passes_per_step = chosen.at("passes")});
    optimizer_->broadcast_parameters();
    optimizer_->zero_grad();
  }

  json play() {
    json found = json::array({state()});
    for (const json& step : chosen_.at("steps")) {
      take(step);
      found.push_back(state());
    }
    return found;
  }

 private:
  /// Rank 0 alone has stepped before, and has another learning rate now.
  void resume() {
    for (const json& gradients : chosen_.at("resumed")) {
      if (is_lbfgs()) {
        inner_->step([&] {
          train::zero_gradients_of(parameters_, true);
          return backward(gradients);
        });
        continue;
      }
      for (std::size_t i = 0; i < parameters_.size(); ++i) {
        at::Tensor& gradient = parameters_[i].mutable_grad();
        gradient.reset();
        if (!gradients[i].is_null()) gradient = tensor_of(gradients[i], parameters_[i].sizes().vec());
      }
      inner_->step();
    }
    train::zero_gradients_of(parameters_, true);
    if (chosen_.contains("new_rate")) inner_->param_groups().front().options().set_lr(chosen_.at("new_rate"));
  }

  bool is_lbfgs() const { return chosen_.at("optimizer").at("class") == "LBFGS"; }

  /// Its gradients are the given ones; those of LBFGS's loss are the distances from the given values.
  at::Tensor backward(const json& gradients) {
    at::Tensor loss = at::zeros({});
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (gradients[i].is_null() || !parameters_[i].requires_grad()) continue;
      const at::Tensor given = tensor_of(gradients[i], parameters_[i].sizes().vec());
      loss = loss + (is_lbfgs() ? (parameters_[i] - given).square().sum() * 0.5 : (parameters_[i] * given).sum());
    }
    if (loss.requires_grad()) loss.backward();
    return loss;
  }

  at::Tensor passes(const json& step) {
    optimizer_->zero_grad(step.at("set_to_none"));
    at::Tensor loss;
    for (const json& gradients : step.at("gradients").at(rank_)) loss = backward(gradients);
    return loss;
  }

  void take(const json& step) {
    for (const json& i : step.at("thawed")) parameters_.at(i).set_requires_grad(true);
    for (const json& i : step.at("frozen")) parameters_.at(i).set_requires_grad(false);
    const std::string way = step.at("way");
    if (way == "closure") {
      optimizer_->step([&] { return passes(step); });
      return;
    }
    passes(step);
    if (way == "plain") {
      optimizer_->step();
      return;
    }
    optimizer_->synchronize();
    if (way == "left out") {
      optimizer_->zero_grad(step.at("set_to_none"));
      return;
    }
    const at::NoGradGuard no_grad;
    for (const at::Tensor& parameter : parameters_) {
      if (parameter.grad().defined()) parameter.mutable_grad().mul_(0.5);
    }
    optimizer_->step();
  }

  json state() const {
    json values = json::array();
    json defined = json::array();
    for (const at::Tensor& parameter : parameters_) {
      values.push_back(values_of(parameter));
      defined.push_back(parameter.grad().defined());
    }
    return {{"values", values}, {"defined", defined}, {"buffers", {values_of(buffer_), values_of(count_)}}};
  }

  const json& chosen_;
  const std::size_t rank_;
  std::vector<at::Tensor> parameters_;
  at::Tensor buffer_;
  at::Tensor count_;
  train::NamedTensors tensors_;
  std::unique_ptr<torch::optim::Optimizer> inner_;
  std::unique_ptr<train::DistributedOptimizer> optimizer_;
};

void run(const std::string& input, const std::string& output) {
  const Bytes text = read_file(input, std::uint64_t{1} << 30);
  const json cases = json::parse(std::string(reinterpret_cast<const char*>(text.data()), text.size()));
  const auto runtime = engine::Runtime::start_from_environment();
  json found = json::array();
  for (const json& chosen : cases) found.push_back(Case(chosen, *runtime).play());
  write_file_atomically(output, as_bytes(found.dump()));
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc != 3) return 2;
    run(argv[1], argv[2]);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
