#include "gyre/collectives/internal/kernels/integer_scaling.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>

#include "gyre/base/check.h"

namespace gyre::collectives::internal {
namespace {

constexpr double kLargestExactInteger = 0x1p53;

Uint128 magnitude_of(Int128 value) { return value < 0 ? -static_cast<Uint128>(value) : static_cast<Uint128>(value); }

int bit_width(Uint128 value) {
  const auto high = static_cast<std::uint64_t>(value >> 64);
  return static_cast<int>(high != 0 ? 64 + std::bit_width(high) : std::bit_width(static_cast<std::uint64_t>(value)));
}

bool fits_int64(Int128 value) { return static_cast<std::int64_t>(value) == value; }

Int128 limited(double value) {
  constexpr double kLimit = 0x1p126;
  if (value >= kLimit) return kLargestProduct;
  if (value <= -kLimit) return -kLargestProduct;
  return static_cast<Int128>(value);
}

/// The whole d for which 1 / d, rounded to double, is `factor`; 0: there is none.
std::int64_t reciprocal_of(double factor) {
  const double divisor = std::round(1.0 / factor);
  if (!(std::abs(divisor) >= 1.0 && std::abs(divisor) <= kLargestExactInteger)) return 0;
  return 1.0 / divisor == factor ? static_cast<std::int64_t>(divisor) : 0;
}

int magnitude_bits(DataType type) { return type == DataType::kUint8 ? 8 : 8 * static_cast<int>(size_of(type)) - 1; }

/// The k for which 2^k is at least `value`.
int bits_of_factor(double value) { return value <= 1.0 ? 0 : std::ilogb(value) + 1; }

struct Fraction {
  std::int64_t numerator;
  Int128 denominator;
};

/// factor / divisor, where numbers.md says that it is a fraction of whole numbers.
std::optional<Fraction> fraction_of(double factor, std::int64_t divisor) {
  if (factor == 0.0) return Fraction{0, 1};
  // mantissa · 2^-shift, with an odd mantissa.
  int exponent = 0;
  auto mantissa = static_cast<std::int64_t>(std::ldexp(std::frexp(factor, &exponent), 53));
  const int zeros = std::countr_zero(static_cast<std::uint64_t>(mantissa));
  mantissa >>= zeros;
  const int shift = 53 - exponent - zeros;
  GYRE_CHECK(shift >= -32);
  if (std::abs(mantissa) <= (std::int64_t{1} << 32) && shift <= 53) {
    return Fraction{mantissa * (std::int64_t{1} << std::max(-shift, 0)), (Int128{1} << std::max(shift, 0)) * divisor};
  }
  if (const std::int64_t reciprocal = reciprocal_of(factor); reciprocal != 0) {
    return Fraction{reciprocal < 0 ? -1 : 1, Int128{std::abs(reciprocal)} * divisor};
  }
  if (const std::int64_t reciprocal = reciprocal_of(factor / static_cast<double>(divisor)); reciprocal != 0) {
    return Fraction{reciprocal < 0 ? -1 : 1, Int128{std::abs(reciprocal)}};
  }
  return std::nullopt;
}

}  // namespace

Int128 multiply_limited(Int128 left, Int128 right) {
  if (fits_int64(left) && fits_int64(right)) return std::clamp(left * right, -kLargestProduct, kLargestProduct);
  if (left == 0 || right == 0) return 0;
  const bool negative = (left < 0) != (right < 0);
  const bool large = bit_width(magnitude_of(left)) + bit_width(magnitude_of(right)) > 127;
  if (large) return negative ? -kLargestProduct : kLargestProduct;
  return std::clamp(left * right, -kLargestProduct, kLargestProduct);
}

IntegerFactor::IntegerFactor(double factor, std::int64_t divisor) : factor_(factor / static_cast<double>(divisor)) {
  GYRE_CHECK(divisor >= 1);
  const std::optional<Fraction> fraction = fraction_of(factor, divisor);
  is_fraction_ = fraction.has_value();
  if (!fraction) return;
  numerator_ = fraction->numerator;
  denominator_ = fraction->denominator;
  // An average that is multiplied by the number of ranks again is a sum.
  if (denominator_ != 1 && numerator_ % denominator_ == 0) {
    numerator_ = static_cast<std::int64_t>(numerator_ / denominator_);
    denominator_ = 1;
  }
  divides_by_int64_ = fits_int64(denominator_);
}

Int128 IntegerFactor::apply(Int128 value) const {
  if (!is_fraction_) return limited(static_cast<double>(value) * factor_);
  if (denominator_ == 1) return multiply_limited(value, numerator_);
  const bool is_short = divides_by_int64_ && fits_int64(value);
  if (is_short && numerator_ == 1) return static_cast<std::int64_t>(value) / static_cast<std::int64_t>(denominator_);
  // (q · denominator + r) · numerator / denominator; both terms have the same sign, so that truncating the second one
  // truncates their sum. r · numerator is below 2^116.
  const Int128 quotient = value / denominator_;
  const Int128 rest = value % denominator_;
  const Int128 whole = multiply_limited(quotient, numerator_);
  return std::clamp(whole + rest * numerator_ / denominator_, -kLargestProduct, kLargestProduct);
}

DataType integer_sum_type(DataType type, ReduceOperation operation, const Scaling& scaling, std::size_t contributions) {
  if (type == DataType::kInt128 || operation == ReduceOperation::kProduct) return DataType::kInt128;
  const bool adds = operation == ReduceOperation::kSum;
  if (!adds && scaling.prescale == 1.0) return type;  // It is one of them.
  const int bits = magnitude_bits(type) + bits_of_factor(std::abs(scaling.prescale)) +
                   (adds ? static_cast<int>(std::bit_width(contributions)) : 0);
  return bits <= 62 ? DataType::kInt64 : DataType::kInt128;
}

}  // namespace gyre::collectives::internal
