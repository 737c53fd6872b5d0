#include "gyre/collectives/kernels.h"

#include <array>

#include "gyre/base/check.h"
#include "gyre/base/floating_point.h"
#include "gyre/collectives/internal/kernels/reduce_call.h"

namespace gyre::collectives {
namespace {

bool is_integer(DataType type) { return !is_floating_point(type) && type != DataType::kBoolean; }

bool goes_through_int64(const internal::ReduceCall& call) {
  if (!is_integer(call.type)) return false;
  const std::size_t size_bytes = size_of(call.type);
  return call.scale != 1.0 || (call.operation == ReduceOperation::kProduct && (size_bytes == 1 || size_bytes == 8));
}

}  // namespace

void reduce(std::byte* destination, std::span<const std::byte* const> sources, std::size_t count, DataType type,
            ReduceOperation operation, double scale) {
  reduce_to_many({&destination, 1}, sources, count, type, operation, scale);
}

void reduce_to_many(std::span<std::byte* const> destinations, std::span<const std::byte* const> sources,
                    std::size_t count, DataType type, ReduceOperation operation, double scale) {
  GYRE_CHECK(!sources.empty());
  GYRE_CHECK(operation != ReduceOperation::kAverage);
  GYRE_CHECK((type != DataType::kBoolean || scale == 1.0));
  const internal::ReduceCall call{destinations, sources, count, type, operation, scale};
  const DefaultFloatingPoint state;
  return goes_through_int64(call) ? internal::reduce_through_int64(call) : internal::reduce_in_vectors(call);
}

void accumulate(std::byte* own, const std::byte* arrived, std::size_t count, DataType type, ReduceOperation operation,
                double scale) {
  const std::array<const std::byte*, 2> sources{arrived, own};
  reduce(own, sources, count, type, operation, scale);
}

void scale_in_place(std::byte* buffer, std::size_t count, DataType type, double scale) {
  const std::array<const std::byte*, 1> sources{buffer};
  reduce(buffer, sources, count, type, ReduceOperation::kSum, scale);
}

}  // namespace gyre::collectives
