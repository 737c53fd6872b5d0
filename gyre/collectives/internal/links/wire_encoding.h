#pragma once

#include <cstddef>
#include <span>

#include "gyre/collectives/kernels.h"

// float32 in the forms of WireFormat. Values are float32 in memory, payloads two bytes per value; `wire` is never
// kNative.

namespace gyre::collectives::internal {

void encode(std::span<std::byte> payload, std::span<const std::byte> values, WireFormat wire);
void decode(std::span<std::byte> values, std::span<const std::byte> payload, WireFormat wire);

/// accumulate() for what arrived encoded.
void accumulate_encoded(std::byte* own, std::span<const std::byte> payload, WireFormat wire, ReduceOperation operation,
                        const Scaling& scaling);

/// What encoding and decoding make of each value: so the sender of a result keeps what the others get.
void round_to_wire(std::span<std::byte> values, WireFormat wire);

}  // namespace gyre::collectives::internal
