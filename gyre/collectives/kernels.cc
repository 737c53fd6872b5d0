#include "gyre/collectives/kernels.h"

#include <array>
#include <cmath>

#include "gyre/base/check.h"
#include "gyre/base/floating_point.h"
#include "gyre/collectives/internal/kernels/reduce_call.h"

namespace gyre::collectives {
namespace {

bool is_integer(DataType type) { return !is_floating_point(type) && type != DataType::kBoolean; }

bool needs_scalars(const internal::ReduceCall& call) {
  if (!is_integer(call.type)) return false;
  const std::size_t size_bytes = size_of(call.type);
  return call.scaling != Scaling{} || call.type == DataType::kInt128 || call.result != call.type ||
         (call.operation == ReduceOperation::kProduct && (size_bytes == 1 || size_bytes == 8));
}

// Not inlined: see DefaultFloatingPoint.
[[gnu::noinline]] Scaling exact_scaling(double prescale, double postscale, double ranks) {
  const double divisor = ranks / postscale;
  const bool exact = std::isfinite(divisor) && std::fma(divisor, postscale, -ranks) == 0.0 &&
                     static_cast<double>(static_cast<float>(divisor)) == divisor;
  if (exact) return {.prescale = prescale, .factor = 1.0, .divisor = divisor};
  return {.prescale = prescale, .factor = postscale / ranks, .divisor = 1.0};
}

void run(const internal::ReduceCall& call) {
  const Scaling& scaling = call.scaling;
  GYRE_CHECK(!call.sources.empty());
  GYRE_CHECK(call.operation != ReduceOperation::kAverage);
  GYRE_CHECK((call.type != DataType::kBoolean || scaling == Scaling{}));
  GYRE_CHECK((is_integer(call.type) || scaling.factor == 1.0 || scaling.divisor == 1.0));
  const DefaultFloatingPoint state;
  return needs_scalars(call) ? internal::reduce_integers(call) : internal::reduce_in_vectors(call);
}

}  // namespace

Scaling make_scaling(double prescale, double postscale, int ranks) {
  const DefaultFloatingPoint state;
  return exact_scaling(prescale, postscale, ranks);
}

void reduce(std::byte* destination, std::span<const std::byte* const> sources, std::size_t count, DataType type,
            ReduceOperation operation, const Scaling& scaling) {
  run({{&destination, 1}, sources, count, type, type, operation, scaling});
}

void reduce_to_many(std::span<std::byte* const> destinations, std::span<const std::byte* const> sources,
                    std::size_t count, DataType type, ReduceOperation operation, const Scaling& scaling) {
  run({destinations, sources, count, type, type, operation, scaling});
}

void reduce_to_float32(float* destination, std::span<const std::byte* const> sources, std::size_t count, DataType half,
                       ReduceOperation operation, const Scaling& scaling) {
  GYRE_CHECK((half == DataType::kFloat16 || half == DataType::kBfloat16));
  auto* const bytes = reinterpret_cast<std::byte*>(destination);
  run({{&bytes, 1}, sources, count, half, DataType::kFloat32, operation, scaling});
}

void reduce_integers_to(std::byte* destination, DataType result, std::span<const std::byte* const> sources,
                        std::size_t count, DataType type, ReduceOperation operation, const Scaling& scaling) {
  GYRE_CHECK((is_integer(type) && is_integer(result)));
  run({{&destination, 1}, sources, count, type, result, operation, scaling});
}

void accumulate(std::byte* own, const std::byte* arrived, std::size_t count, DataType type, ReduceOperation operation,
                const Scaling& scaling) {
  GYRE_CHECK(scaling.prescale == 1.0);
  const std::array<const std::byte*, 2> sources{arrived, own};
  reduce(own, sources, count, type, operation, scaling);
}

void scale_in_place(std::byte* buffer, std::size_t count, DataType type, const Scaling& scaling) {
  const std::array<const std::byte*, 1> sources{buffer};
  reduce(buffer, sources, count, type, ReduceOperation::kSum, scaling);
}

}  // namespace gyre::collectives
