#include "gyre/base/random.h"

#include <sys/random.h>

#include <cerrno>
#include <cmath>
#include <numeric>
#include <utility>

#include "gyre/base/check.h"
#include "gyre/base/error.h"

namespace gyre {

std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
  constexpr std::uint32_t kMultiplier0 = 0xD2511F53;
  constexpr std::uint32_t kMultiplier1 = 0xCD9E8D57;
  constexpr std::uint32_t kWeyl0 = 0x9E3779B9;
  constexpr std::uint32_t kWeyl1 = 0xBB67AE85;
  constexpr int kRounds = 10;
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t product0 = std::uint64_t{kMultiplier0} * counter[0];
    const std::uint64_t product1 = std::uint64_t{kMultiplier1} * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(product0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

Random::Random(std::uint64_t seed, std::uint64_t stream)
    : key_{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)}, stream_(stream) {}

std::uint32_t Random::next_u32() {
  if (used_ == buffer_.size()) {
    buffer_ = philox4x32({static_cast<std::uint32_t>(block_), static_cast<std::uint32_t>(block_ >> 32),
                          static_cast<std::uint32_t>(stream_), static_cast<std::uint32_t>(stream_ >> 32)},
                         key_);
    ++block_;
    used_ = 0;
  }
  return buffer_[used_++];
}

std::uint64_t Random::next_u64() {
  const std::uint64_t low = next_u32();
  return low | (std::uint64_t{next_u32()} << 32);
}

std::uint64_t Random::below(std::uint64_t bound) {
  GYRE_CHECK(bound >= 1U);
  // Values under `threshold` would make the first residues likelier than the last; they are redrawn.
  const std::uint64_t threshold = -bound % bound;
  for (;;) {
    const std::uint64_t value = next_u64();
    if (value >= threshold) return value % bound;
  }
}

float Random::uniform() { return static_cast<float>(next_u32() >> 8) * 0x1p-24F; }

float Random::uniform(float low, float high) {
  const float value = low + (high - low) * uniform();
  return value < high ? value : std::nextafter(high, low);  // Rounding may have reached it.
}

std::vector<std::uint64_t> permutation(std::uint64_t count, std::uint64_t seed, std::uint64_t stream) {
  std::vector<std::uint64_t> order(count);
  std::iota(order.begin(), order.end(), std::uint64_t{0});
  Random random(seed, stream);
  for (std::uint64_t i = count; i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  return order;
}

void fill_with_secure_random(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::getrandom(bytes.data(), bytes.size(), 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw system_error("getrandom", errno);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

}  // namespace gyre
