#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace gyre {

/// CRC-32C (Castagnoli) of `bytes`, continuing from `previous` (0 to start).
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t previous = 0);

/// The masked form that TFRecord and TensorBoard files store.
std::uint32_t masked_crc32c(std::span<const std::byte> bytes);

/// XXH3, 64 bits: fast, for detecting damage; not a defence against an adversary.
std::uint64_t xxh3_64(std::span<const std::byte> bytes, std::uint64_t seed = 0);

using Sha256 = std::array<std::byte, 32>;
Sha256 sha256(std::span<const std::byte> bytes);
/// 64 lower-case digits.
std::string hex(const Sha256& digest);
Sha256 hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> message);

/// Takes the same time whatever differs.
bool equal_in_constant_time(std::span<const std::byte> a, std::span<const std::byte> b);

}  // namespace gyre
