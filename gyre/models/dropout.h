#pragma once

#include <cstdint>
#include <span>

namespace gyre::models {

/// Names the random choices of one rank's forward pass. A sample's dropout depends on the seed, the step and its
/// position in the global batch, so it is the same whichever rank computes it.
struct DropoutKey {
  std::uint64_t seed;
  std::uint64_t step;
  std::uint64_t first_position;  ///< In the global batch, of the first sample.
};

/// Positions in a global batch must be below this, so that they fit into the streams of the generator.
inline constexpr std::uint64_t kMostPositions = std::uint64_t{1} << 22;

/// Dropout's probability as layers have it: in steps of 1/256.
unsigned dropout_of_256(double probability);

/// Zeros and 1 / (1 - p), [samples, mask.size() / samples]: p = zero_of_256 / 256. Sample i draws from a stream of its
/// own. `place` is one of 0 to 3: a network's dropouts draw differently.
void fill_dropout_mask(std::span<float> mask, std::uint64_t samples, unsigned zero_of_256, std::uint64_t place,
                       const DropoutKey& key);

}  // namespace gyre::models
