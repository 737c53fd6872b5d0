#include "gyre/collectives/internal/links/wire_encoding.h"

#include <cstdint>

#include "gyre/base/check.h"
#include "gyre/collectives/kernels.h"

namespace gyre::collectives::internal {
namespace {

DataType half_of(WireFormat wire) {
  GYRE_CHECK((wire == WireFormat::kBfloat16 || wire == WireFormat::kFloat16));
  return wire == WireFormat::kFloat16 ? DataType::kFloat16 : DataType::kBfloat16;
}

float* floats(std::byte* bytes) { return reinterpret_cast<float*>(bytes); }
const std::uint16_t* halves(const std::byte* bytes) { return reinterpret_cast<const std::uint16_t*>(bytes); }

}  // namespace

void encode(std::span<std::byte> payload, std::span<const std::byte> values, WireFormat wire) {
  GYRE_CHECK(payload.size() * 2 == values.size());
  narrow_float32(reinterpret_cast<std::uint16_t*>(payload.data()), reinterpret_cast<const float*>(values.data()),
                 values.size() / sizeof(float), half_of(wire));
}

void decode(std::span<std::byte> values, std::span<const std::byte> payload, WireFormat wire) {
  GYRE_CHECK(payload.size() * 2 == values.size());
  widen_to_float32(floats(values.data()), halves(payload.data()), values.size() / sizeof(float), half_of(wire));
}

void accumulate_encoded(std::byte* own, std::span<const std::byte> payload, WireFormat wire, ReduceOperation operation,
                        const Scaling& scaling) {
  accumulate_narrowed(floats(own), halves(payload.data()), payload.size() / sizeof(std::uint16_t), half_of(wire),
                      operation, scaling);
}

void round_to_wire(std::span<std::byte> values, WireFormat wire) {
  round_float32(floats(values.data()), values.size() / sizeof(float), half_of(wire));
}

}  // namespace gyre::collectives::internal
