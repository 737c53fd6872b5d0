#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace gyre::collectives {

constexpr std::uint64_t kSeed = 20240517;

// Conversions by the definition of the formats, not by the tricks of the kernels.
inline float float16_value(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int mantissa = bits & 1023;
  const float sign = (bits & 0x8000) != 0 ? -1.0f : 1.0f;
  if (exponent == 31) return mantissa != 0 ? std::numeric_limits<float>::quiet_NaN() : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(mantissa), -24);
  return sign * std::ldexp(static_cast<float>(1024 + mantissa), exponent - 25);
}

inline std::uint16_t float16_bits(float value) {
  const auto sign = static_cast<std::uint16_t>(std::signbit(value) ? 0x8000 : 0);
  if (std::isnan(value)) return static_cast<std::uint16_t>(sign | 0x7e00);
  const double magnitude = std::fabs(static_cast<double>(value));
  if (magnitude >= 65520.0) return static_cast<std::uint16_t>(sign | 0x7c00);
  int exponent = -14;
  while (magnitude >= std::ldexp(1.0, exponent + 1)) ++exponent;
  // nearbyint rounds to nearest even; a carry runs into the exponent as it should.
  const auto units = static_cast<int>(std::nearbyint(std::ldexp(magnitude, 10 - exponent)));
  const int bits = magnitude < std::ldexp(1.0, -14) ? units : ((exponent + 15) << 10) + units - 1024;
  return static_cast<std::uint16_t>(sign | bits);
}

inline float bfloat16_value(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }

inline std::uint16_t bfloat16_bits(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto lower = static_cast<std::uint16_t>(bits >> 16);
  if (std::isnan(value)) return static_cast<std::uint16_t>(lower | 0x40);
  if (std::isinf(value)) return lower;
  const std::uint32_t rest = bits & 0xffff;
  const bool up = rest > 0x8000 || (rest == 0x8000 && lower % 2 == 1);
  return static_cast<std::uint16_t>(lower + (up ? 1 : 0));
}

// Runs the rest of a test once per instruction set that this processor has.
template <typename Body>
void for_each_instruction_set(Body body) {
  std::int64_t remaining = hwy::SupportedTargets();
  while (remaining != 0) {
    const std::int64_t target = remaining & -remaining;
    remaining &= remaining - 1;
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    SCOPED_TRACE(fmt::format("instruction set {}", hwy::TargetName(target)));
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace gyre::collectives
