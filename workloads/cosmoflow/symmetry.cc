#include "workloads/cosmoflow/symmetry.h"

#include <array>
#include <vector>

#include "gyre/base/check.h"
#include "gyre/base/random.h"

namespace gyre::cosmoflow {
namespace {

constexpr std::array<std::array<std::int64_t, 4>, 6> kAxisOrders = {
    {{0, 1, 2, 3}, {0, 1, 3, 2}, {0, 2, 1, 3}, {0, 2, 3, 1}, {0, 3, 1, 2}, {0, 3, 2, 1}}};
constexpr std::uint64_t kMirrorings = 8;

/// Keeps these draws apart from the shuffle's and from dropout's, which have the same seed.
constexpr std::uint64_t kTurningDomain = 0x7475726e00000000;

}  // namespace

at::Tensor turned(const at::Tensor& volume, std::uint64_t symmetry) {
  GYRE_CHECK(symmetry < kCubeSymmetries);
  std::vector<std::int64_t> mirrored;
  for (std::int64_t axis = 1; axis <= 3; ++axis) {
    if ((symmetry % kMirrorings >> (axis - 1) & 1) != 0) mirrored.push_back(axis);
  }
  return volume.permute(kAxisOrders.at(symmetry / kMirrorings)).flip(mirrored);
}

at::Tensor turned_at_random(const at::Tensor& volumes, std::span<const std::uint64_t> samples, std::uint64_t seed,
                            std::uint64_t step) {
  at::Tensor result = at::empty_like(volumes);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    Random random(seed ^ kTurningDomain, (step << 32) + samples[i]);
    const auto place = static_cast<std::int64_t>(i);
    result.select(0, place).copy_(turned(volumes.select(0, place), random.below(kCubeSymmetries)));
  }
  return result;
}

}  // namespace gyre::cosmoflow
