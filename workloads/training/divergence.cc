#include "workloads/training/divergence.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <vector>

#include "gyre/base/error.h"

namespace gyre::training {
namespace {

[[noreturn]] void fail(std::string_view what, std::string_view where) {
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("the training diverged: {} not finite {}. Checkpoints hold finite values only: continue from "
                          "the newest with --resume and a lower learning rate, or look for values in the data that "
                          "are not numbers",
                          what, where));
}

std::optional<std::size_t> first_not_finite(std::span<const double> values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) return i;
  }
  return std::nullopt;
}

}  // namespace

Divergence::Divergence(train::GradientExchange& exchange, std::span<const Metric> metrics)
    : exchange_(exchange), metrics_(metrics) {
  if (!exchange.replicas_are_equal()) return;
  const at::Tensor carrier = at::zeros({exchange.size(), static_cast<std::int64_t>(metrics.size())});
  carriers_ = {{"gyre/not_finite", carrier.set_requires_grad(true)}};
}

void Divergence::report(std::span<const double> sums, std::string_view where) {
  const std::optional<std::size_t> metric = first_not_finite(sums);
  if (carriers_.empty()) {
    if (metric) fail(fmt::format("the {} on rank {} is", metrics_[*metric].name, exchange_.rank()), where);
    return;
  }
  const c10::NoGradGuard no_grad;
  const at::Tensor& carrier = carriers_.front().tensor;
  at::Tensor values = at::zeros_like(carrier);
  if (metric) values[exchange_.rank()][static_cast<std::int64_t>(*metric)] = 1;
  carrier.mutable_grad() = values;
}

void Divergence::check(std::string_view where) const {
  if (carriers_.empty()) return;
  const at::Tensor& reported = carriers_.front().tensor.grad();
  if (!reported.defined() || reported.count_nonzero().item<std::int64_t>() == 0) return;
  std::vector<std::string> found;
  const at::Tensor places = reported.nonzero();
  for (std::int64_t i = 0; i < places.size(0); ++i) {
    found.push_back(fmt::format("the {} on rank {}",
                                metrics_[static_cast<std::size_t>(places[i][1].item<std::int64_t>())].name,
                                places[i][0].item<std::int64_t>()));
  }
  fail(fmt::format("{} {}", fmt::join(found, ", "), found.size() == 1 ? "is" : "are"), where);
}

void check_finite(std::span<const Metric> metrics, std::span<const double> values, std::string_view set,
                  std::string_view where) {
  if (const auto metric = first_not_finite(values)) fail(fmt::format("the {}{} is", set, metrics[*metric].name), where);
}

void check_finite(const train::NamedTensors& tensors, std::string_view where) {
  for (const auto& [name, tensor] : tensors) {
    if (tensor.is_floating_point() && !tensor.isfinite().all().item<bool>()) {
      fail(fmt::format("a value of {} is", name), where);
    }
  }
}

}  // namespace gyre::training
