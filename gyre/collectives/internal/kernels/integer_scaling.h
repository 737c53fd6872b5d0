#pragma once

#include <cstdint>

#include "gyre/collectives/kernels.h"

// How integers are scaled: docs/guide/numbers.md says what is exact, and the bounds here keep it so.

namespace gyre::collectives::internal {

using Int128 = __int128;
using Uint128 = unsigned __int128;

/// Beyond it a product of contributions only has a sign: with a factor of 2^-53 or more it fits no type anyway.
constexpr Int128 kLargestProduct = Int128{1} << 126;

/// left · right, limited to ±kLargestProduct, so that the order of a product's factors changes no bit.
Int128 multiply_limited(Int128 left, Int128 right);

/// A number by which integers are multiplied, and whole numbers by which they are divided.
class IntegerFactor {
 public:
  /// factor / divisor. Needs factor == 0 or 2^-53 <= |factor| <= 2^32, and 1 <= divisor < 2^31.
  explicit IntegerFactor(double factor, std::int64_t divisor = 1);

  /// value · factor / divisor, truncated toward zero, limited to ±kLargestProduct. With a factor that is a fraction of
  /// whole numbers (numbers.md) nothing is rounded before that; otherwise the product is rounded to double.
  Int128 apply(Int128 value) const;
  /// The same for a value whose product an int64 holds.
  std::int64_t apply_short(std::int64_t value) const {
    if (is_fraction_ && numerator_ == 1 && divides_by_int64_) {
      return value / static_cast<std::int64_t>(denominator_);
    }
    return static_cast<std::int64_t>(apply(value));
  }
  bool is_one() const { return is_fraction_ && numerator_ == 1 && denominator_ == 1; }

 private:
  std::int64_t numerator_ = 1;
  Int128 denominator_ = 1;
  bool is_fraction_ = true;
  bool divides_by_int64_ = true;
  double factor_ = 1.0;  ///< Where it is not a fraction.
};

/// In which type sums (products, …) of `contributions` integers of `type` can be made before they are scaled: `type`,
/// kInt64 or kInt128.
DataType integer_sum_type(DataType type, ReduceOperation operation, const Scaling& scaling, std::size_t contributions);

}  // namespace gyre::collectives::internal
