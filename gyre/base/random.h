#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace gyre {

/// Philox-4x32-10: a counter-based generator. Block `counter` of stream `key` is a pure function, so
/// results do not depend on who asks, in which order, or on which machine.
/// Source: Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key);

/// A sequence drawn from Philox: the pair (seed, stream) names it. Not thread-safe.
class Random {
 public:
  explicit Random(std::uint64_t seed, std::uint64_t stream = 0);

  std::uint32_t next_u32();
  std::uint64_t next_u64();
  /// Uniform in [0, bound), without bias. bound >= 1.
  std::uint64_t below(std::uint64_t bound);
  /// Uniform in [0, 1): 24 bits.
  float uniform();
  /// Uniform in [low, high). low < high, both finite.
  float uniform(float low, float high);

 private:
  std::array<std::uint32_t, 2> key_;
  std::uint64_t stream_;
  std::uint64_t block_ = 0;
  std::array<std::uint32_t, 4> buffer_{};
  std::size_t used_ = 4;
};

/// A permutation of 0..count-1 that depends on (seed, stream) only. Fisher-Yates over Random.
std::vector<std::uint64_t> permutation(std::uint64_t count, std::uint64_t seed, std::uint64_t stream);

/// Bytes for keys and nonces from the operating system. Throws Error(kIo) when it has none.
void fill_with_secure_random(std::span<std::byte> bytes);

}  // namespace gyre
