#include "gyre/models/internal/requirements.h"

#include <fmt/format.h>

#include "gyre/base/error.h"

namespace gyre::models::internal {
namespace {

constexpr double kMostValues = 1e12;

}  // namespace

void require(bool holds, const std::string& what) {
  if (!holds) throw Error(ErrorCode::kInvalidArgument, what);
}

void require_within(std::int64_t value, std::int64_t low, std::int64_t high, const std::string& name) {
  require(value >= low && value <= high, fmt::format("{} is {}; {} to {} are possible", name, value, low, high));
}

Layers require_possible_sizes(Layers layers) {
  for (const TensorOfNetwork& tensor : tensors_of(layers)) {
    double values = 1;  // An integer could overflow.
    for (const std::int64_t side : tensor.shape) values *= static_cast<double>(side);
    require(values < kMostValues, fmt::format("{} would have {} values", tensor.name, values));
  }
  return layers;
}

}  // namespace gyre::models::internal
