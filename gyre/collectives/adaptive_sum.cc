#include "gyre/collectives/adaptive_sum.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "gyre/base/check.h"
#include "gyre/base/floating_point.h"
#include "gyre/collectives/kernels.h"

namespace gyre::collectives {
namespace {

constexpr std::size_t kBlockElements = 512;

bool is_half(DataType type) { return type == DataType::kFloat16 || type == DataType::kBfloat16; }

/// What will be rounded to 16 bits later is rounded to odd, so that it is as if it had been rounded once: to the
/// neighbour whose last bit is set, unless float32 holds the number.
float rounded_to_odd(double value) {
  const auto nearest = static_cast<float>(value);
  if (!std::isfinite(nearest) || static_cast<double>(nearest) == value) return nearest;
  const bool away = std::abs(static_cast<double>(nearest)) > std::abs(value);
  const std::uint32_t toward_zero = std::bit_cast<std::uint32_t>(nearest) - (away ? 1U : 0U);
  return std::bit_cast<float>(toward_zero | 1U);
}

template <typename Number>
std::vector<double> scaled(const std::byte* from, std::size_t count, double factor) {
  std::vector<double> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    Number number;
    std::memcpy(&number, from + i * sizeof number, sizeof number);
    values[i] = static_cast<double>(number) * factor;
  }
  return values;
}

std::vector<double> scaled_halves(const std::byte* from, std::size_t count, DataType type, double factor) {
  std::vector<std::uint16_t> halves(count);
  if (count > 0) std::memcpy(halves.data(), from, count * sizeof(std::uint16_t));
  std::vector<float> values(count);
  widen_to_float32(values.data(), halves.data(), count, type);
  return scaled<float>(reinterpret_cast<const std::byte*>(values.data()), count, factor);
}

std::vector<double> read_elements(const std::byte* from, DataType type, std::size_t count, double factor) {
  if (type == DataType::kFloat64) return scaled<double>(from, count, factor);
  if (type == DataType::kFloat32) return scaled<float>(from, count, factor);
  return scaled_halves(from, count, type, factor);
}

void write(const FloatElements& to, std::span<const double> values, double factor) {
  std::array<float, kBlockElements> floats;
  std::array<std::uint16_t, kBlockElements> halves;
  for (std::size_t begin = 0; begin < values.size(); begin += kBlockElements) {
    const std::size_t length = std::min(kBlockElements, values.size() - begin);
    std::byte* const place = to.elements + begin * size_of(to.type);
    if (to.type == DataType::kFloat64) {
      for (std::size_t i = 0; i < length; ++i) {
        const double value = values[begin + i] * factor;
        std::memcpy(place + i * sizeof value, &value, sizeof value);
      }
      continue;
    }
    for (std::size_t i = 0; i < length; ++i) {
      const double value = values[begin + i] * factor;
      floats[i] = is_half(to.type) ? rounded_to_odd(value) : static_cast<float>(value);
    }
    if (is_half(to.type)) {
      narrow_float32(halves.data(), floats.data(), length, to.type);
      std::memcpy(place, halves.data(), length * sizeof(std::uint16_t));
    } else {
      std::memcpy(place, floats.data(), length * sizeof(float));
    }
  }
}

/// In eight sums of every eighth product each: as fast as the processor's vectors, in an order of its own.
double dot(std::span<const double> a, std::span<const double> b) {
  constexpr std::size_t kSums = 8;
  std::array<double, kSums> sums{};
  std::size_t i = 0;
  for (; i + kSums <= a.size(); i += kSums) {
    for (std::size_t lane = 0; lane < kSums; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  }
  for (std::size_t lane = 0; i < a.size(); ++i, ++lane) sums[lane] += a[i] * b[i];
  double sum = 0;
  for (const double one : sums) sum += one;
  return sum;
}

/// Leaves the adaptive sum of both in `a`.
void combine(std::vector<double>& a, std::span<const double> b) {
  const double common = dot(a, b);
  const double size_a = dot(a, a);
  const double size_b = dot(b, b);
  const double weight_a = size_a > 0 ? 1 - common / (2 * size_a) : 1.0;
  const double weight_b = size_b > 0 ? 1 - common / (2 * size_b) : 1.0;
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = weight_a * a[i] + weight_b * b[i];
}

// Not inlined: see DefaultFloatingPoint.
[[gnu::noinline]] void sum_adaptively(const FloatElements& result, std::span<const std::byte* const> contributions,
                                      DataType type, std::size_t count, double prescale, double postscale) {
  std::vector<std::vector<double>> level;
  for (const std::byte* contribution : contributions) {
    level.push_back(read_elements(contribution, type, count, prescale));
  }
  while (level.size() > 1) {
    std::vector<std::vector<double>> next;
    for (std::size_t i = 0; i < level.size(); i += 2) {
      if (i + 1 < level.size()) combine(level[i], level[i + 1]);
      next.push_back(std::move(level[i]));
    }
    level = std::move(next);
  }
  write(result, level.front(), postscale);
}

}  // namespace

void adaptive_sum(const FloatElements& result, std::span<const std::byte* const> contributions, DataType type,
                  std::size_t count, double prescale, double postscale) {
  GYRE_CHECK(!contributions.empty());
  GYRE_CHECK((is_floating_point(type) && is_floating_point(result.type)));
  const DefaultFloatingPoint state;
  sum_adaptively(result, contributions, type, count, prescale, postscale);
}

}  // namespace gyre::collectives
