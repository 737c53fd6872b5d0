#include "workloads/training/divergence.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "gyre/base/error.h"

namespace gyre::training {
namespace {

std::optional<std::size_t> first_not_finite(std::span<const double> values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) return i;
  }
  return std::nullopt;
}

/// [ranks, metrics]: 1 for the first metric of this rank that is not finite, else 0.
at::Tensor table_of(std::span<const double> sums, const train::GradientExchange& exchange, at::ScalarType type) {
  at::Tensor table = at::zeros({exchange.size(), static_cast<std::int64_t>(sums.size())}, type);
  if (const auto metric = first_not_finite(sums)) table[exchange.rank()][static_cast<std::int64_t>(*metric)] = 1;
  return table;
}

/// "the loss on rank 0, the loss on rank 1 are"; nothing where the table is empty.
std::string describe(const at::Tensor& table, std::span<const Metric> metrics, std::string_view set) {
  std::vector<std::string> found;
  const at::Tensor places = table.nonzero();
  for (std::int64_t i = 0; i < places.size(0); ++i) {
    found.push_back(fmt::format("the {}{} on rank {}", set,
                                metrics[static_cast<std::size_t>(places[i][1].item<std::int64_t>())].name,
                                places[i][0].item<std::int64_t>()));
  }
  if (found.empty()) return {};
  return fmt::format("{} {}", fmt::join(found, ", "), found.size() == 1 ? "is" : "are");
}

}  // namespace

Divergence::Divergence(train::GradientExchange& exchange, std::span<const Metric> metrics,
                       std::function<std::string()> advice)
    : exchange_(exchange), metrics_(metrics), advice_(std::move(advice)) {
  if (!exchange.replicas_are_equal()) return;
  const at::Tensor carrier = at::zeros({exchange.size(), static_cast<std::int64_t>(metrics.size())});
  carriers_ = {{"gyre/not_finite", carrier.set_requires_grad(true)}};
}

void Divergence::fail(std::string_view what, std::string_view where) const {
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("the training diverged: {} not finite {}. {}", what, where, advice_()));
}

void Divergence::report(std::span<const double> sums, std::string_view where) {
  if (carriers_.empty()) {
    if (const auto metric = first_not_finite(sums)) {
      fail(fmt::format("the {} on rank {} is", metrics_[*metric].name, exchange_.rank()), where);
    }
    return;
  }
  const c10::NoGradGuard no_grad;
  carriers_.front().tensor.mutable_grad() = table_of(sums, exchange_, at::kFloat);
}

void Divergence::check_reports(std::string_view where) const {
  if (carriers_.empty()) return;
  const at::Tensor& reported = carriers_.front().tensor.grad();
  if (!reported.defined()) return;
  if (const std::string what = describe(reported, metrics_, ""); !what.empty()) fail(what, where);
}

void Divergence::check_sums(std::span<const double> sums, std::string_view set, std::string_view where) const {
  const at::Tensor table = table_of(sums, exchange_, at::kDouble);
  exchange_.sum({table.mutable_data_ptr<double>(), static_cast<std::size_t>(table.numel())});
  if (const std::string what = describe(table, metrics_, set); !what.empty()) fail(what, where);
}

void Divergence::check_tensors(const train::NamedTensors& tensors, std::string_view where) const {
  for (const auto& [name, tensor] : tensors) {
    if (tensor.is_floating_point() && !tensor.isfinite().all().item<bool>()) {
      fail(fmt::format("a value of {} on rank {} is", name, exchange_.rank()), where);
    }
  }
}

}  // namespace gyre::training
