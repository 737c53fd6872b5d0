#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace gyre::data {

/// Rounds to the nearest bfloat16, ties to even. A NaN stays one.
inline std::uint16_t to_bfloat16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>(bits >> 16 | 0x40);
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

inline float from_bfloat16(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }

/// Rounds to the nearest IEEE binary16, ties to even; beyond 65504 to infinity. A NaN stays one.
inline std::uint16_t to_float16(float value) {
  constexpr std::uint32_t kInfinity = 0x7f800000;
  constexpr std::uint32_t kRoundsToInfinity = 0x477ff000;  // 65520.
  constexpr std::uint32_t kLeastNormal = 0x38800000;       // 2^-14.
  constexpr std::uint32_t kHalf = 0x3f000000;              // 0.5, whose last bit is worth 2^-24, as a subnormal's.
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16 & 0x8000;
  const std::uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > kInfinity) return static_cast<std::uint16_t>(sign | 0x7e00);
  if (magnitude >= kRoundsToInfinity) return static_cast<std::uint16_t>(sign | 0x7c00);
  if (magnitude < kLeastNormal) {
    const float rounded = std::bit_cast<float>(magnitude) + 0.5F;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(rounded) - kHalf));
  }
  return static_cast<std::uint16_t>(sign | ((magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13));
}

inline float from_float16(std::uint16_t bits) {
  const std::uint32_t sign = std::uint32_t{bits & 0x8000U} << 16;
  const std::uint32_t exponent = bits >> 10 & 0x1f;
  const std::uint32_t fraction = bits & 0x3ff;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(fraction) * 0x1p-24F;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
  }
  const std::uint32_t wide = exponent == 0x1f ? 0xff : exponent + 112;
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

}  // namespace gyre::data
