#pragma once

#include <cstdint>

namespace gyre::data {

/// A permutation of 0..count-1 that depends on (seed, stream) alone and is computed a position at a time, so that the
/// order of 10^9 samples takes no memory. A value; thread-safe.
/// Source: a Feistel network over the fewest bits that hold `count` numbers, with Philox as its round function,
/// repeated until it lands below `count` (cycle walking: Black and Rogaway, "Ciphers with arbitrary finite domains",
/// CT-RSA 2002).
class Shuffle {
 public:
  Shuffle(std::uint64_t count, std::uint64_t seed, std::uint64_t stream);

  std::uint64_t count() const { return count_; }
  /// Which number stands at `position`, which is less than count().
  std::uint64_t at(std::uint64_t position) const;

 private:
  std::uint64_t encrypt(std::uint64_t value) const;

  std::uint64_t count_;
  std::uint64_t seed_;
  std::uint64_t stream_;
  int low_bits_;
  int high_bits_;
};

/// A shuffle that keeps neighbours together: the numbers 0..count-1 are cut into blocks of `block` (the last may be
/// shorter), the blocks are permuted, and within each one its numbers. For files that are dear to read out of order.
class BlockShuffle {
 public:
  /// `block` is at least 1.
  BlockShuffle(std::uint64_t count, std::uint64_t block, std::uint64_t seed, std::uint64_t stream);

  std::uint64_t at(std::uint64_t position) const;

 private:
  std::uint64_t count_;
  std::uint64_t block_;
  std::uint64_t seed_;
  std::uint64_t stream_;
  Shuffle whole_blocks_;
};

}  // namespace gyre::data
