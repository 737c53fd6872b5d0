#include "gyre/data/shuffle.h"

#include <bit>
#include <utility>

#include "gyre/base/check.h"
#include "gyre/base/random.h"

namespace gyre::data {
namespace {

constexpr std::uint32_t kRounds = 8;
constexpr std::uint32_t kPurposes = 0x9E3779B9;  // Odd: no two purposes are the same.

std::uint64_t low_mask(int bits) { return (std::uint64_t{1} << bits) - 1; }

}  // namespace

Shuffle::Shuffle(std::uint64_t count, std::uint64_t seed, std::uint64_t stream)
    : count_(count), seed_(seed), stream_(stream), small_() {
  const int bits = count <= 1 ? 0 : static_cast<int>(std::bit_width(count - 1));
  low_bits_ = bits / 2;
  high_bits_ = bits - low_bits_;
  if (count > kSmall) return;
  Random random(seed, stream);
  for (std::size_t i = 0; i < count; ++i) small_.at(i) = static_cast<std::uint8_t>(i);
  for (std::size_t i = static_cast<std::size_t>(count); i > 1; --i) {
    std::swap(small_.at(i - 1), small_.at(static_cast<std::size_t>(random.below(i))));
  }
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
  if (count_ <= kSmall) return small_.at(static_cast<std::size_t>(position));
  // The domain is less than twice as large as count_, so that this ends after two steps on average, and always: a
  // permutation comes back to where it began.
  std::uint64_t value = encrypt(position);
  while (value >= count_) value = encrypt(value);
  return value;
}

RandomKey derived(const RandomKey& key, std::uint32_t purpose, std::uint64_t number) {
  const auto words = philox4x32(
      {static_cast<std::uint32_t>(number), static_cast<std::uint32_t>(number >> 32),
       static_cast<std::uint32_t>(key.stream), static_cast<std::uint32_t>(key.stream >> 32)},
      {static_cast<std::uint32_t>(key.seed) ^ purpose * kPurposes, static_cast<std::uint32_t>(key.seed >> 32)});
  return {words[0] | std::uint64_t{words[1]} << 32, words[2] | std::uint64_t{words[3]} << 32};
}

}  // namespace gyre::data
