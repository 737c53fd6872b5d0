#include "gyre/engine/internal/plan/error_feedback.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "gyre/base/check.h"
#include "gyre/base/floating_point.h"
#include "gyre/collectives/kernels.h"

namespace gyre::engine::internal {

namespace {

/// A piece and its three images stay in the first-level cache.
constexpr std::size_t kPieceElements = 1024;

// Not inlined: see DefaultFloatingPoint.
[[gnu::noinline]] void compensate_with(collectives::DataType half, std::span<float> values, std::span<float> residuals,
                                       float prescale) {
  std::array<std::uint16_t, kPieceElements> narrow;
  std::array<float, kPieceElements> rounded;
  for (std::size_t begin = 0; begin < values.size(); begin += kPieceElements) {
    const std::size_t count = std::min(kPieceElements, values.size() - begin);
    float* value = values.data() + begin;
    float* residual = residuals.data() + begin;
    for (std::size_t i = 0; i < count; ++i) value[i] = prescale * value[i] + residual[i];
    collectives::narrow_float32(narrow.data(), value, count, half);
    collectives::widen_to_float32(rounded.data(), narrow.data(), count, half);
    for (std::size_t i = 0; i < count; ++i) {
      const float error = value[i] - rounded[i];
      residual[i] = std::isfinite(error) ? error : 0.0F;
      value[i] = rounded[i];
    }
  }
}

}  // namespace

void compensate(std::span<float> values, std::span<float> residuals, collectives::WireFormat wire, float prescale) {
  GYRE_CHECK(values.size() == residuals.size());
  GYRE_CHECK(wire != collectives::WireFormat::kNative);
  const DefaultFloatingPoint state;
  const bool brain = wire == collectives::WireFormat::kBfloat16;
  compensate_with(brain ? collectives::DataType::kBfloat16 : collectives::DataType::kFloat16, values, residuals,
                  prescale);
}

}  // namespace gyre::engine::internal
