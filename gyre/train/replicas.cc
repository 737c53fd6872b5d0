#include "gyre/train/replicas.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/logger.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gyre/base/error.h"

namespace gyre::train {
namespace {

/// The hash that stands for any parameters.
constexpr std::uint64_t kNotCompared = 0;

/// What one rank says of its parameters, in numbers whose sum with zeros is exact.
class Table {
 public:
  Table(int ranks, std::size_t parameters)
      : parameters_(parameters), values_(static_cast<std::size_t>(ranks) * (1 + kColumns * parameters)) {}

  void fill(int rank, const std::vector<std::uint64_t>& hashes, const NamedTensors& parameters, bool raises) {
    double* own = row(rank);
    *own++ = raises ? 2 : 1;
    for (std::size_t i = 0; i < parameters_; ++i) {
      *own++ = static_cast<double>(hashes[i] >> 32);
      *own++ = static_cast<double>(hashes[i] & 0xffffffffU);
      *own++ = parameters[i].tensor.grad().defined() ? 1 : 0;
    }
  }

  std::span<double> values() { return values_; }
  bool is_there(int rank) { return *row(rank) > 0; }
  bool raises(int rank) { return *row(rank) > 1; }
  bool has_gradient(int rank, std::size_t i) { return row(rank)[1 + kColumns * i + 2] > 0; }
  bool equal(int a, int b, std::size_t i) {
    const double* of_a = row(a) + 1 + kColumns * i;
    const double* of_b = row(b) + 1 + kColumns * i;
    return of_a[0] == of_b[0] && of_a[1] == of_b[1];
  }

 private:
  static constexpr std::size_t kColumns = 3;
  double* row(int rank) { return &values_[static_cast<std::size_t>(rank) * (1 + kColumns * parameters_)]; }

  std::size_t parameters_;
  std::vector<double> values_;
};

struct Difference {
  std::size_t first = 0;  // Parameter.
  std::size_t count = 0;
  std::size_t trained = 0;  // Parameters with a gradient.
  std::vector<int> ranks;   // Where the first one differs from `root`.
  int root = 0;
};

Difference difference_in(Table& table, int ranks, std::size_t parameters) {
  Difference difference;
  while (!table.is_there(difference.root)) ++difference.root;
  for (std::size_t i = 0; i < parameters; ++i) {
    std::vector<int> others;
    bool has_gradient = false;
    for (int rank = difference.root; rank < ranks; ++rank) {
      if (!table.is_there(rank)) continue;
      has_gradient = has_gradient || table.has_gradient(rank, i);
      if (!table.equal(difference.root, rank, i)) others.push_back(rank);
    }
    if (!has_gradient) continue;
    ++difference.trained;
    if (others.empty()) continue;
    if (difference.count++ > 0) continue;
    difference.first = i;
    difference.ranks = others;
  }
  return difference;
}

std::string describe(const Difference& difference, const NamedTensors& parameters) {
  return fmt::format(
      "the ranks do not start with the same parameters: '{}' on rank{} {} differs from rank {} ({} of {} parameters "
      "differ). Averaged gradients change all replicas alike, so they will never agree. Call broadcast_parameters() "
      "before the first step, or make sure that all ranks load the same checkpoint or use the same seed. "
      "(ExchangeOptions::unequal_replicas = UnequalReplicas::kError makes this an error, kAllow accepts it.)",
      parameters[difference.first].name, difference.ranks.size() > 1 ? "s" : "", fmt::join(difference.ranks, ", "),
      difference.root, difference.count, difference.trained);
}

}  // namespace

void compare_replicas(GradientExchange& exchange, const NamedTensors& parameters, UnequalReplicas response,
                      const Logger& logger) {
  std::vector<std::uint64_t> hashes;
  std::uint64_t all = kNotCompared;
  if (response != UnequalReplicas::kAllow) {
    all = 1;
    for (const NamedTensor& parameter : parameters) {
      hashes.push_back(hash_tensors({{"", parameter.tensor}}));
      all = all * 31 + hashes.back();
    }
    if (all == kNotCompared) all = 1;
  }
  std::vector<std::uint64_t> found;
  for (const std::optional<std::uint64_t>& hash : gather_hashes(exchange, all)) {
    if (hash) found.push_back(*hash);
  }
  if (std::ranges::find(found, kNotCompared) != found.end()) return;
  if (std::ranges::adjacent_find(found, std::not_equal_to<>()) == found.end()) return;
  Table table(exchange.size(), parameters.size());
  table.fill(exchange.rank(), hashes, parameters, response == UnequalReplicas::kError);
  exchange.sum(table.values());
  const Difference difference = difference_in(table, exchange.size(), parameters.size());
  if (difference.count == 0) return;
  bool raises = true;
  for (int rank = 0; rank < exchange.size(); ++rank) raises = raises && (!table.is_there(rank) || table.raises(rank));
  const std::string problem = describe(difference, parameters);
  if (raises) throw Error(ErrorCode::kMismatch, problem);
  if (exchange.rank() == difference.root) logger->warn("{}", problem);
}

}  // namespace gyre::train
