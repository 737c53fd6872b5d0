#include "gyre/engine/internal/open/neutral.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "gyre/collectives/data_type.h"

namespace gyre::engine::internal {

namespace {

template <typename T>
void fill(std::span<std::byte> values, T value) {
  for (std::size_t at = 0; at + sizeof(T) <= values.size(); at += sizeof(T)) {
    std::memcpy(values.data() + at, &value, sizeof(T));
  }
}

template <typename T>
void fill_for(std::span<std::byte> values, ReduceOperation operation) {
  using Limits = std::numeric_limits<T>;
  T largest = Limits::max();
  T smallest = Limits::lowest();
  if constexpr (std::is_floating_point_v<T>) {
    largest = Limits::infinity();
    smallest = -Limits::infinity();
  }
  fill<T>(values, operation == ReduceOperation::kProduct ? T{1}
                  : operation == ReduceOperation::kMin   ? largest
                                                         : smallest);
}

/// A 16-bit float by the bits of 1 and of infinity.
void fill_half(std::span<std::byte> values, ReduceOperation operation, std::uint16_t one, std::uint16_t infinity) {
  constexpr std::uint16_t kSign = 0x8000;
  const auto negative = static_cast<std::uint16_t>(kSign | infinity);
  fill<std::uint16_t>(values, operation == ReduceOperation::kProduct ? one
                              : operation == ReduceOperation::kMin   ? infinity
                                                                     : negative);
}

}  // namespace

void fill_with_neutral(std::span<std::byte> values, const Signature& signature) {
  ReduceOperation operation = signature.operation;
  const bool ordered = operation == ReduceOperation::kMin || operation == ReduceOperation::kMax;
  // Infinity times zero is not a number; but all other contributions are zeros then.
  if ((!ordered && operation != ReduceOperation::kProduct) || (ordered && signature.prescale == 0)) {
    std::fill(values.begin(), values.end(), std::byte{0});
    return;
  }
  if (ordered && signature.prescale < 0) {
    operation = operation == ReduceOperation::kMin ? ReduceOperation::kMax : ReduceOperation::kMin;
  }
  switch (signature.type) {
    case DataType::kUint8: return fill_for<std::uint8_t>(values, operation);
    case DataType::kInt8: return fill_for<std::int8_t>(values, operation);
    case DataType::kInt16: return fill_for<std::int16_t>(values, operation);
    case DataType::kInt32: return fill_for<std::int32_t>(values, operation);
    case DataType::kInt64: return fill_for<std::int64_t>(values, operation);
    case DataType::kFloat16: return fill_half(values, operation, 0x3C00, 0x7C00);
    case DataType::kBfloat16: return fill_half(values, operation, 0x3F80, 0x7F80);
    case DataType::kFloat32: return fill_for<float>(values, operation);
    case DataType::kFloat64: return fill_for<double>(values, operation);
    case DataType::kBoolean: return fill<std::uint8_t>(values, operation == ReduceOperation::kMax ? 0 : 1);
    case DataType::kInt128: return;  // No tensor has it.
  }
}

Pending neutral_contribution(const OrderedOperation& operation) {
  Pending pending;
  pending.request.name = operation.name;
  Signature& signature = pending.request.signature;
  signature = *operation.signature;
  const bool reduces = signature.kind == OperationKind::kAllreduce || signature.kind == OperationKind::kReduceScatter;
  if (reduces || signature.kind == OperationKind::kBroadcast) {
    if (signature.elsewhere) return pending;
    pending.memory.resize(element_count(signature.shape) * collectives::size_of(signature.type));
    pending.request.input = pending.memory;
    pending.request.output = pending.memory;
  } else if (!signature.shape.empty()) {
    signature.shape[0] = 0;  // Of an allgather or all-to-all it has no rows.
  }
  if (reduces) fill_with_neutral(pending.memory, signature);
  return pending;
}

}  // namespace gyre::engine::internal
