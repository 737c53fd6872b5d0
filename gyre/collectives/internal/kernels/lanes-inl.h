// How elements become vectors of numbers to reckon with, and back. Included once per instruction set.

// The include guard of Highway: one definition per target.
#if defined(GYRE_COLLECTIVES_INTERNAL_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GYRE_COLLECTIVES_INTERNAL_LANES_INL_H_
#undef GYRE_COLLECTIVES_INTERNAL_LANES_INL_H_
#else
#define GYRE_COLLECTIVES_INTERNAL_LANES_INL_H_
#endif

#include <hwy/highway.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "gyre/collectives/kernels.h"

HWY_BEFORE_NAMESPACE();
namespace gyre::collectives::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// Elements that are reckoned with as they are.
template <typename T>
struct NativeLanes {
  using Storage = T;
  using Tag = hn::ScalableTag<T>;
  using Vector = hn::Vec<Tag>;

  static Vector load(const Storage* from) { return hn::LoadU(Tag(), from); }
  static void store(Vector value, Storage* to) { hn::StoreU(value, Tag(), to); }
};

/// Any byte but zero is true; results are 0 or 1.
struct BooleanLanes : NativeLanes<std::uint8_t> {
  static Vector load(const Storage* from) { return hn::Min(hn::LoadU(Tag(), from), hn::Set(Tag(), 1)); }
};

/// bfloat16 is the upper half of a float32; rounding is to nearest even, a NaN stays one.
struct Bfloat16Lanes {
  using Storage = std::uint16_t;
  using Tag = hn::ScalableTag<float>;
  using Vector = hn::Vec<Tag>;

  static Vector load(const Storage* from) {
    const hn::RebindToUnsigned<Tag> bits_tag;
    const hn::Rebind<std::uint16_t, Tag> half_tag;
    return hn::BitCast(Tag(), hn::ShiftLeft<16>(hn::PromoteTo(bits_tag, hn::LoadU(half_tag, from))));
  }

  static void store(Vector value, Storage* to) {
    const hn::RebindToUnsigned<Tag> bits_tag;
    const hn::RebindToSigned<Tag> signed_tag;
    const hn::Rebind<std::uint16_t, Tag> half_tag;
    const auto bits = hn::BitCast(bits_tag, value);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(bits_tag, 1));
    const auto rounded = hn::Add(hn::Add(bits, hn::Set(bits_tag, 0x7fff)), odd);
    const auto quiet_nan = hn::Or(bits, hn::Set(bits_tag, 0x0040'0000));
    const auto chosen = hn::IfThenElse(hn::RebindMask(bits_tag, hn::IsNaN(value)), quiet_nan, rounded);
    hn::StoreU(hn::DemoteTo(half_tag, hn::BitCast(signed_tag, hn::ShiftRight<16>(chosen))), half_tag, to);
  }
};

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
#define GYRE_HAS_FLOAT16_CONVERSION 1
#else
#define GYRE_HAS_FLOAT16_CONVERSION 0
#endif
#undef GYRE_FLOAT16_IN_HARDWARE
#if GYRE_HAS_FLOAT16_CONVERSION && !defined(HWY_DISABLE_F16C)
#define GYRE_FLOAT16_IN_HARDWARE 1
#else
#define GYRE_FLOAT16_IN_HARDWARE 0
#endif
#undef GYRE_HAS_FLOAT16_CONVERSION

/// IEEE binary16; rounding is to nearest even, what is too large becomes infinity, a NaN stays one. Highway's own
/// conversion truncates where the processor has none, so that one is spelt out here: all targets give the same bits.
struct Float16Lanes {
  using Storage = std::uint16_t;
  using Tag = hn::ScalableTag<float>;
  using Vector = hn::Vec<Tag>;

#if GYRE_FLOAT16_IN_HARDWARE
  static Vector load(const Storage* from) {
    const hn::Rebind<hwy::float16_t, Tag> half_tag;
    const hn::Rebind<std::uint16_t, Tag> bits_tag;
    return hn::PromoteTo(Tag(), hn::BitCast(half_tag, hn::LoadU(bits_tag, from)));
  }

  static void store(Vector value, Storage* to) {
    const hn::Rebind<hwy::float16_t, Tag> half_tag;
    const hn::Rebind<std::uint16_t, Tag> bits_tag;
    hn::StoreU(hn::BitCast(bits_tag, hn::DemoteTo(half_tag, value)), bits_tag, to);
  }
#else
  static Vector load(const Storage* from) {
    const hn::RebindToUnsigned<Tag> bits_tag;
    const hn::Rebind<std::uint16_t, Tag> half_tag;
    const auto half = hn::PromoteTo(bits_tag, hn::LoadU(half_tag, from));
    const auto sign = hn::ShiftLeft<16>(hn::And(half, hn::Set(bits_tag, 0x8000)));
    const auto magnitude = hn::And(half, hn::Set(bits_tag, 0x7fff));
    const auto shifted = hn::ShiftLeft<13>(magnitude);
    const auto normal = hn::Add(shifted, hn::Set(bits_tag, (127 - 15) << 23));
    // A subnormal's mantissa counts units of 2^-24: put under the exponent of 2^-14, less the leading one.
    const auto least_normal = hn::Set(bits_tag, 113u << 23);
    const auto subnormal = hn::BitCast(
        bits_tag, hn::Sub(hn::BitCast(Tag(), hn::Add(shifted, least_normal)), hn::BitCast(Tag(), least_normal)));
    const auto quiet = hn::IfThenElseZero(hn::Gt(magnitude, hn::Set(bits_tag, 0x7c00)), hn::Set(bits_tag, 0x0040'0000));
    const auto special = hn::Or(hn::Or(shifted, hn::Set(bits_tag, 0x7f80'0000)), quiet);
    auto result = hn::IfThenElse(hn::Lt(magnitude, hn::Set(bits_tag, 0x0400)), subnormal, normal);
    result = hn::IfThenElse(hn::Gt(magnitude, hn::Set(bits_tag, 0x7bff)), special, result);
    return hn::BitCast(Tag(), hn::Or(result, sign));
  }

  static void store(Vector value, Storage* to) {
    const hn::RebindToUnsigned<Tag> bits_tag;
    const hn::RebindToSigned<Tag> signed_tag;
    const hn::Rebind<std::uint16_t, Tag> half_tag;
    const auto bits = hn::BitCast(bits_tag, value);
    const auto sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(bits_tag, 0x8000));
    const auto magnitude = hn::And(bits, hn::Set(bits_tag, 0x7fff'ffff));
    const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(bits_tag, 1));
    const auto rebased = hn::Sub(magnitude, hn::Set(bits_tag, (127 - 15) << 23));
    const auto normal = hn::ShiftRight<13>(hn::Add(hn::Add(rebased, hn::Set(bits_tag, 0x0fff)), odd));
    // Adding 0.5 lets the adder round to units of 2^-24, which then lie in the lowest bits.
    const auto half = hn::Set(Tag(), 0.5f);
    const auto subnormal =
        hn::Sub(hn::BitCast(bits_tag, hn::Add(hn::BitCast(Tag(), magnitude), half)), hn::BitCast(bits_tag, half));
    const auto payload = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(bits_tag, 0x03ff));
    const auto nan = hn::Or(payload, hn::Set(bits_tag, 0x7e00));
    auto result = hn::IfThenElse(hn::Lt(magnitude, hn::Set(bits_tag, 113u << 23)), subnormal, normal);
    result = hn::IfThenElse(hn::Gt(magnitude, hn::Set(bits_tag, (143u << 23) - 1)), hn::Set(bits_tag, 0x7c00), result);
    result = hn::IfThenElse(hn::Gt(magnitude, hn::Set(bits_tag, 0x7f80'0000)), nan, result);
    hn::StoreU(hn::DemoteTo(half_tag, hn::BitCast(signed_tag, hn::Or(result, sign))), half_tag, to);
  }
#endif
};

struct Sum {
  template <typename Vector>
  static Vector combine(Vector left, Vector right) {
    return hn::Add(left, right);
  }
};

struct Product {
  template <typename Vector>
  static Vector combine(Vector left, Vector right) {
    return hn::Mul(left, right);
  }
};

// For floats spelt with comparisons: the processors' own minimum differs between instruction sets for NaN and for -0.
// Equal numbers differ in nothing but a zero's sign: -0 is the lesser one, so that the order of the ranks, which
// depends on where they are, changes no bit.
struct Min {
  template <typename Vector>
  static Vector combine(Vector left, Vector right) {
    if constexpr (hwy::IsFloat<hn::TFromV<Vector>>()) {
      const auto lesser = hn::IfThenElse(hn::Or(hn::Lt(right, left), hn::IsNaN(right)), right, left);
      return hn::IfThenElse(hn::Eq(left, right), hn::Or(left, right), lesser);
    } else {
      return hn::Min(left, right);
    }
  }
};

struct Max {
  template <typename Vector>
  static Vector combine(Vector left, Vector right) {
    if constexpr (hwy::IsFloat<hn::TFromV<Vector>>()) {
      const auto greater = hn::IfThenElse(hn::Or(hn::Lt(left, right), hn::IsNaN(right)), right, left);
      return hn::IfThenElse(hn::Eq(left, right), hn::And(left, right), greater);
    } else {
      return hn::Max(left, right);
    }
  }
};

// What is done to a combined value at the end, in the type of the vectors. Integers come here without scaling.
template <typename Lanes>
class Finish {
  using Vector = typename Lanes::Vector;
  using Number = hn::TFromV<Vector>;
  static constexpr bool kScales = hwy::IsFloat<Number>();

 public:
  explicit Finish(const Scaling& scaling) : number_(hn::Set(typename Lanes::Tag(), number_of(scaling, divides_))) {}

  Vector operator()(Vector value) const {
    if constexpr (kScales) {
      return divides_ ? hn::Div(value, number_) : hn::Mul(value, number_);
    } else {
      return value;
    }
  }

 private:
  // A division by a power of two is a multiplication by another one, which is faster.
  static Number number_of(const Scaling& scaling, bool& divides) {
    if (!kScales || scaling.divisor == 1.0) return static_cast<Number>(scaling.factor);
    int exponent = 0;
    const bool power_of_two = std::fabs(std::frexp(scaling.divisor, &exponent)) == 0.5;
    constexpr int kMostExponent = 100;  // Beyond it the reciprocal might be a denormal.
    divides = !power_of_two || std::abs(exponent) > kMostExponent;
    return static_cast<Number>(divides ? scaling.divisor : 1.0 / scaling.divisor);
  }

  bool divides_ = false;
  Vector number_;
};

}  // namespace gyre::collectives::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
