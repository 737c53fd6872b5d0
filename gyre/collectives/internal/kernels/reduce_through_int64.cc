#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "gyre/base/check.h"
#include "gyre/collectives/internal/kernels/reduce_call.h"

namespace gyre::collectives::internal {
namespace {

constexpr std::size_t kBlockElements = 512;

std::int64_t combine(std::int64_t left, std::int64_t right, ReduceOperation operation) {
  // Unsigned arithmetic wraps; signed overflow would be undefined.
  const auto left_bits = static_cast<std::uint64_t>(left);
  const auto right_bits = static_cast<std::uint64_t>(right);
  switch (operation) {
    case ReduceOperation::kSum: return static_cast<std::int64_t>(left_bits + right_bits);
    case ReduceOperation::kProduct: return static_cast<std::int64_t>(left_bits * right_bits);
    case ReduceOperation::kMin: return std::min(left, right);
    case ReduceOperation::kMax: return std::max(left, right);
    case ReduceOperation::kAverage: break;
  }
  GYRE_CHECK(operation != ReduceOperation::kAverage);
  return 0;
}

/// The d >= 2 for which scale is 1.0 / d, or 0: dividing by d is exact where multiplying by 1.0 / d is not (49 · (1.0 /
/// 49) < 1).
std::int64_t divisor_of(double scale) {
  constexpr double kLargestExactInteger = 9007199254740992.0;  // 2^53
  const double divisor = std::round(1.0 / scale);
  if (!(divisor >= 2.0 && divisor <= kLargestExactInteger)) return 0;
  return 1.0 / divisor == scale ? static_cast<std::int64_t>(divisor) : 0;
}

template <typename T>
T nearest(std::int64_t value) {
  return static_cast<T>(std::clamp<std::int64_t>(value, std::numeric_limits<T>::min(), std::numeric_limits<T>::max()));
}

template <typename T>
T nearest(double value) {
  if (std::isnan(value)) return 0;
  // 2^63 itself is the least double that an int64 cannot hold.
  constexpr double kTooLarge = 9223372036854775808.0;
  if (value >= kTooLarge) return std::numeric_limits<T>::max();
  if (value < -kTooLarge) return std::numeric_limits<T>::min();
  return nearest<T>(static_cast<std::int64_t>(value));
}

/// What is done to a combined value at the end.
struct Finish {
  explicit Finish(const Scaling& scaling)
      : none(scaling == Scaling{}),
        integer(divisor_of(scaling.divisor == 1.0 ? scaling.factor : 1.0 / scaling.divisor)),
        factor(scaling.factor),
        divisor(scaling.divisor) {}

  template <typename T>
  T apply(std::int64_t value) const {
    if (none) return static_cast<T>(value);  // Wraps.
    if (integer != 0) return nearest<T>(value / integer);
    return nearest<T>(static_cast<double>(value) * factor / divisor);
  }

  bool none;
  std::int64_t integer;  ///< To divide by, or 0.
  double factor;
  double divisor;
};

template <typename T>
void reduce_type(const ReduceCall& call) {
  const Finish finish(call.scaling);
  std::array<T, kBlockElements> elements;
  std::array<std::int64_t, kBlockElements> sums;
  for (std::size_t begin = 0; begin < call.count; begin += kBlockElements) {
    const std::size_t length = std::min(kBlockElements, call.count - begin);
    for (std::size_t source = 0; source < call.sources.size(); ++source) {
      std::memcpy(elements.data(), call.sources[source] + begin * sizeof(T), length * sizeof(T));
      for (std::size_t i = 0; i < length; ++i) {
        sums[i] = source == 0 ? elements[i] : combine(sums[i], elements[i], call.operation);
      }
    }
    for (std::size_t i = 0; i < length; ++i) elements[i] = finish.apply<T>(sums[i]);
    for (std::byte* destination : call.destinations) {
      std::memcpy(destination + begin * sizeof(T), elements.data(), length * sizeof(T));
    }
  }
}

}  // namespace

void reduce_through_int64(const ReduceCall& call) {
  switch (call.type) {
    case DataType::kUint8: return reduce_type<std::uint8_t>(call);
    case DataType::kInt8: return reduce_type<std::int8_t>(call);
    case DataType::kInt16: return reduce_type<std::int16_t>(call);
    case DataType::kInt32: return reduce_type<std::int32_t>(call);
    case DataType::kInt64: return reduce_type<std::int64_t>(call);
    default: GYRE_CHECK(name(call.type) == "an integer");
  }
}

}  // namespace gyre::collectives::internal
