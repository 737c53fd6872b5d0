#include "workloads/training/dropout.h"

#include <ATen/ATen.h>

#include <cmath>

#include "gyre/base/check.h"
#include "gyre/base/random.h"

namespace gyre::training {
namespace {

constexpr std::uint64_t kLayers = 4;
// Keeps dropout's draws apart from the shuffle's and the first weights', which may use the same seed.
constexpr std::uint64_t kDropoutDomain = 0x64726f706f757400;

}  // namespace

unsigned dropout_of_256(double probability) {
  GYRE_CHECK((probability >= 0 && probability < 1));
  return std::min(255U, static_cast<unsigned>(std::lround(probability * 256)));
}

at::Tensor dropout_mask(std::int64_t samples, std::int64_t values, unsigned zero_of_256, std::uint64_t layer,
                        const DropoutKey& key) {
  GYRE_CHECK((values % 4 == 0 && zero_of_256 < 256 && layer < kLayers));
  const float keep = 256.0F / static_cast<float>(256 - zero_of_256);
  const at::Tensor mask = at::empty({samples, values});
  auto* out = mask.mutable_data_ptr<float>();
  for (std::int64_t sample = 0; sample < samples; ++sample) {
    const std::uint64_t position = key.first_position + static_cast<std::uint64_t>(sample);
    GYRE_CHECK(position < kMostPositions);
    Random random(key.seed ^ kDropoutDomain, key.step << 24 | position << 2 | layer);
    for (std::int64_t i = 0; i < values; i += 4, out += 4) {
      const std::uint32_t bits = random.next_u32();  // One byte decides about one value.
      for (int k = 0; k < 4; ++k) out[k] = (bits >> (8 * k) & 0xffU) < zero_of_256 ? 0.0F : keep;
    }
  }
  return mask;
}

}  // namespace gyre::training
