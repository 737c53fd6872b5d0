#include "gyre/collectives/internal/kernels/wide_integers.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "gyre/base/check.h"

namespace gyre::collectives::internal {
namespace {

template <typename T>
void widen(std::span<const std::byte> elements, std::vector<std::int64_t>& values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    T element;
    std::memcpy(&element, elements.data() + i * sizeof(T), sizeof(T));
    values[i] = element;
  }
}

template <typename T>
void narrow(std::span<const std::int64_t> values, std::span<std::byte> elements) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto element = static_cast<T>(
        std::clamp<std::int64_t>(values[i], std::numeric_limits<T>::min(), std::numeric_limits<T>::max()));
    std::memcpy(elements.data() + i * sizeof(T), &element, sizeof(T));
  }
}

}  // namespace

bool needs_wide_integers(const ReductionPlan& plan) {
  return plan.scaling != Scaling{} && !is_floating_point(plan.type) && plan.type != DataType::kBoolean &&
         size_of(plan.type) < sizeof(std::int64_t);
}

ReductionPlan widened(ReductionPlan plan) {
  plan.type = DataType::kInt64;
  plan.contribution_scale = 1.0;  // Done before widening, in the type itself.
  return plan;
}

std::vector<std::int64_t> widen_integers(std::span<const std::byte> elements, DataType type) {
  std::vector<std::int64_t> values(elements.size() / size_of(type));
  switch (type) {
    case DataType::kUint8: widen<std::uint8_t>(elements, values); break;
    case DataType::kInt8: widen<std::int8_t>(elements, values); break;
    case DataType::kInt16: widen<std::int16_t>(elements, values); break;
    case DataType::kInt32: widen<std::int32_t>(elements, values); break;
    default: GYRE_CHECK(name(type) == "an integer of fewer than 8 bytes");
  }
  return values;
}

void narrow_integers(std::span<const std::int64_t> values, std::span<std::byte> elements, DataType type) {
  GYRE_CHECK(values.size() * size_of(type) <= elements.size());
  switch (type) {
    case DataType::kUint8: narrow<std::uint8_t>(values, elements); break;
    case DataType::kInt8: narrow<std::int8_t>(values, elements); break;
    case DataType::kInt16: narrow<std::int16_t>(values, elements); break;
    case DataType::kInt32: narrow<std::int32_t>(values, elements); break;
    default: GYRE_CHECK(name(type) == "an integer of fewer than 8 bytes");
  }
}

}  // namespace gyre::collectives::internal
