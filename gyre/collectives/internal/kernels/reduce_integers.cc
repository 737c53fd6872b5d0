#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "gyre/base/check.h"
#include "gyre/collectives/internal/kernels/integer_scaling.h"
#include "gyre/collectives/internal/kernels/reduce_call.h"

namespace gyre::collectives::internal {
namespace {

constexpr std::size_t kBlockElements = 512;

/// Calls `work` with a value of the integer type.
template <typename Work>
void with_type(DataType type, const Work& work) {
  switch (type) {
    case DataType::kUint8: return work(std::uint8_t{});
    case DataType::kInt8: return work(std::int8_t{});
    case DataType::kInt16: return work(std::int16_t{});
    case DataType::kInt32: return work(std::int32_t{});
    case DataType::kInt64: return work(std::int64_t{});
    case DataType::kInt128: return work(Int128{});
    default: GYRE_CHECK(name(type) == "an integer");
  }
}

/// Sums, and an int64's products, wrap around; where that must not be, the sum's type is wide enough.
template <typename Sum>
Sum combine(Sum left, Sum right, ReduceOperation operation) {
  // Unsigned arithmetic wraps; signed overflow would be undefined.
  using Unsigned = std::conditional_t<sizeof(Sum) == sizeof(std::uint64_t), std::uint64_t, Uint128>;
  switch (operation) {
    case ReduceOperation::kSum: return static_cast<Sum>(static_cast<Unsigned>(left) + static_cast<Unsigned>(right));
    case ReduceOperation::kProduct:
      if constexpr (std::is_same_v<Sum, Int128>) {
        return multiply_limited(left, right);
      } else {
        return static_cast<Sum>(static_cast<Unsigned>(left) * static_cast<Unsigned>(right));
      }
    case ReduceOperation::kMin: return std::min(left, right);
    case ReduceOperation::kMax: return std::max(left, right);
    case ReduceOperation::kAverage: break;
  }
  GYRE_CHECK(operation != ReduceOperation::kAverage);
  return 0;
}

template <typename Result, typename Value>
Result nearest(Value value) {
  if constexpr (sizeof(Result) >= sizeof(Value)) {
    return static_cast<Result>(value);
  } else {
    return static_cast<Result>(
        std::clamp<Value>(value, std::numeric_limits<Result>::min(), std::numeric_limits<Result>::max()));
  }
}

/// What is done to a combined value at the end: nothing, in which case it wraps around; or it is scaled, and becomes
/// the nearest value of the result's type.
struct Finish {
  bool wraps;
  IntegerFactor factor;

  template <typename Result, typename Sum>
  Result apply(Sum sum) const {
    if (wraps) return static_cast<Result>(sum);
    return factor.is_one() ? nearest<Result>(sum) : nearest<Result>(factor.apply(sum));
  }
};

/// Combines sources of T in Sum, into destinations of Result.
template <typename T, typename Sum, typename Result>
void reduce_by_blocks(const ReduceCall& call, const Finish& finish) {
  const IntegerFactor prescale(call.scaling.prescale);
  std::array<T, kBlockElements> elements;
  std::array<Sum, kBlockElements> sums;
  std::array<Result, kBlockElements> results;
  const auto scaled = [&](T element) {
    if constexpr (sizeof(Sum) == sizeof(std::int64_t)) {
      return prescale.apply_short(element);
    } else {
      return prescale.apply(element);
    }
  };
  for (std::size_t begin = 0; begin < call.count; begin += kBlockElements) {
    const std::size_t length = std::min(kBlockElements, call.count - begin);
    for (std::size_t source = 0; source < call.sources.size(); ++source) {
      std::memcpy(elements.data(), call.sources[source] + begin * sizeof(T), length * sizeof(T));
      if (prescale.is_one()) {
        for (std::size_t i = 0; i < length; ++i) {
          sums[i] = source == 0 ? Sum{elements[i]} : combine(sums[i], Sum{elements[i]}, call.operation);
        }
        continue;
      }
      for (std::size_t i = 0; i < length; ++i) {
        const Sum element = scaled(elements[i]);
        sums[i] = source == 0 ? element : combine(sums[i], element, call.operation);
      }
    }
    for (std::size_t i = 0; i < length; ++i) results[i] = finish.apply<Result>(sums[i]);
    for (std::byte* destination : call.destinations) {
      std::memcpy(destination + begin * sizeof(Result), results.data(), length * sizeof(Result));
    }
  }
}

Finish finish_of(const ReduceCall& call) {
  const bool wraps = call.scaling == Scaling{} && call.type == call.result && call.type != DataType::kInt128;
  return {wraps, IntegerFactor(call.scaling.factor, static_cast<std::int64_t>(call.scaling.divisor))};
}

/// The types of T and Result are equal.
template <typename T>
void reduce_to_same(const ReduceCall& call, const Finish& finish) {
  if constexpr (!std::is_same_v<T, Int128>) {
    const bool is_wide = !finish.wraps && integer_sum_type(call.type, call.operation, call.scaling,
                                                           call.sources.size()) == DataType::kInt128;
    if (!is_wide) return reduce_by_blocks<T, std::int64_t, T>(call, finish);
  }
  reduce_by_blocks<T, Int128, T>(call, finish);
}

}  // namespace

void reduce_integers(const ReduceCall& call) {
  GYRE_CHECK((call.scaling.prescale == 1.0 || call.type != DataType::kInt128));
  const Finish finish = finish_of(call);
  with_type(call.type, [&](auto element) {
    using T = decltype(element);
    if (call.result == call.type) return reduce_to_same<T>(call, finish);
    with_type(call.result, [&](auto result) {
      using Result = decltype(result);
      if constexpr (sizeof(T) < sizeof(Result) && sizeof(Result) >= sizeof(std::int64_t)) {
        reduce_by_blocks<T, Result, Result>(call, finish);  // Partial sums.
      } else if constexpr (sizeof(T) > sizeof(Result) && sizeof(T) >= sizeof(std::int64_t)) {
        reduce_by_blocks<T, T, Result>(call, finish);  // Of partial sums.
      } else {
        GYRE_CHECK(call.result == call.type);
      }
    });
  });
}

}  // namespace gyre::collectives::internal
