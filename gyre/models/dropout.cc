#include "gyre/models/dropout.h"

#include <algorithm>
#include <cmath>

#include "gyre/base/check.h"
#include "gyre/base/random.h"

namespace gyre::models {
namespace {

constexpr std::uint64_t kPlaces = 4;
constexpr std::size_t kValuesPerDraw = 4;  // One byte decides about one value.
// Keeps dropout's draws apart from the shuffle's and the first weights', which may use the same seed.
constexpr std::uint64_t kDropoutDomain = 0x64726f706f757400;

}  // namespace

unsigned dropout_of_256(double probability) {
  GYRE_CHECK((probability >= 0 && probability < 1));
  return std::min(255U, static_cast<unsigned>(std::lround(probability * 256)));
}

void fill_dropout_mask(std::span<float> mask, std::uint64_t samples, unsigned zero_of_256, std::uint64_t place,
                       const DropoutKey& key) {
  GYRE_CHECK((zero_of_256 < 256 && place < kPlaces));
  GYRE_CHECK((samples > 0 && mask.size() % samples == 0));
  const float keep = 256.0F / static_cast<float>(256 - zero_of_256);
  const std::size_t values = mask.size() / samples;
  for (std::uint64_t sample = 0; sample < samples; ++sample) {
    const std::uint64_t position = key.first_position + sample;
    GYRE_CHECK(position < kMostPositions);
    Random random(key.seed ^ kDropoutDomain, key.step << 24 | position << 2 | place);
    const std::span<float> row = mask.subspan(sample * values, values);
    for (std::size_t i = 0; i < values; i += kValuesPerDraw) {
      const std::uint32_t bits = random.next_u32();
      const std::size_t count = std::min(kValuesPerDraw, values - i);
      for (std::size_t k = 0; k < count; ++k) row[i + k] = (bits >> (8 * k) & 0xffU) < zero_of_256 ? 0.0F : keep;
    }
  }
}

}  // namespace gyre::models
