#include "gyre/data/shuffle.h"

#include <bit>

#include "gyre/base/check.h"
#include "gyre/base/random.h"

namespace gyre::data {
namespace {

constexpr std::uint32_t kRounds = 8;
// Within a block, block b draws from stream (kWithinBlocks + b) of a seed of its own.
constexpr std::uint64_t kWithinBlocks = 0x9E3779B97F4A7C15;

std::uint64_t low_mask(int bits) { return (std::uint64_t{1} << bits) - 1; }

}  // namespace

Shuffle::Shuffle(std::uint64_t count, std::uint64_t seed, std::uint64_t stream)
    : count_(count), seed_(seed), stream_(stream) {
  const int bits = count <= 1 ? 0 : static_cast<int>(std::bit_width(count - 1));
  low_bits_ = bits / 2;
  high_bits_ = bits - low_bits_;
}

std::uint64_t Shuffle::encrypt(std::uint64_t value) const {
  std::uint64_t low = value & low_mask(low_bits_);
  std::uint64_t high = value >> low_bits_;
  const auto mix = [&](std::uint64_t half, std::uint32_t round) {
    return philox4x32({static_cast<std::uint32_t>(half), round, static_cast<std::uint32_t>(stream_),
                       static_cast<std::uint32_t>(stream_ >> 32)},
                      {static_cast<std::uint32_t>(seed_), static_cast<std::uint32_t>(seed_ >> 32)})[0];
  };
  for (std::uint32_t round = 0; round < kRounds; ++round) {
    if (round % 2 == 0) {
      high ^= mix(low, round) & low_mask(high_bits_);
    } else {
      low ^= mix(high, round) & low_mask(low_bits_);
    }
  }
  return high << low_bits_ | low;
}

std::uint64_t Shuffle::at(std::uint64_t position) const {
  GYRE_CHECK(position < count_);
  if (count_ == 1) return 0;
  // The domain is less than twice as large as count_, so that this ends after two steps on average, and always: a
  // permutation comes back to where it began.
  std::uint64_t value = encrypt(position);
  while (value >= count_) value = encrypt(value);
  return value;
}

BlockShuffle::BlockShuffle(std::uint64_t count, std::uint64_t block, std::uint64_t seed, std::uint64_t stream)
    : count_(count), block_(block), seed_(seed), stream_(stream), whole_blocks_(count / block, seed, stream) {}

std::uint64_t BlockShuffle::at(std::uint64_t position) const {
  GYRE_CHECK(position < count_);
  const std::uint64_t whole = whole_blocks_.count() * block_;
  // A shorter last block stays last, so that every other position belongs to a block of full length.
  const std::uint64_t block = position < whole ? whole_blocks_.at(position / block_) : whole_blocks_.count();
  const std::uint64_t size = position < whole ? block_ : count_ - whole;
  const Shuffle within(size, seed_ ^ kWithinBlocks, (stream_ << 32) ^ block);
  return block * block_ + within.at(position < whole ? position % block_ : position - whole);
}

}  // namespace gyre::data
