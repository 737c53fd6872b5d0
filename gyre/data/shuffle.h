#pragma once

#include <array>
#include <cstdint>

namespace gyre::data {

/// A permutation of 0..count-1 that depends on (seed, stream) alone and is computed a position at a time, so that the
/// order of 10^9 samples takes no memory. A value; thread-safe.
/// Up to kSmall numbers are shuffled by Fisher and Yates's method: a network over so few bits cannot reach all orders.
/// Source: else a Feistel network over the fewest bits that hold `count` numbers, with Philox as its round function,
/// repeated until it lands below `count` (cycle walking: Black and Rogaway, "Ciphers with arbitrary finite domains",
/// CT-RSA 2002).
class Shuffle {
 public:
  Shuffle(std::uint64_t count, std::uint64_t seed, std::uint64_t stream);

  std::uint64_t count() const { return count_; }
  /// Which number stands at `position`, which is less than count().
  std::uint64_t at(std::uint64_t position) const;

 private:
  static constexpr std::uint64_t kSmall = 64;

  std::uint64_t encrypt(std::uint64_t value) const;

  std::uint64_t count_;
  std::uint64_t seed_;
  std::uint64_t stream_;
  int low_bits_;
  int high_bits_;
  std::array<std::uint8_t, kSmall> small_;  // Where count_ is at most kSmall: the whole order.
};

/// What a random choice is drawn from: the seed and the stream of a Shuffle, a Random or a permutation().
struct RandomKey {
  std::uint64_t seed = 0;
  std::uint64_t stream = 0;
};

/// The key of choice `number` of one purpose, which has nothing to do with those of other numbers, purposes and keys.
RandomKey derived(const RandomKey& key, std::uint32_t purpose, std::uint64_t number);

}  // namespace gyre::data
