#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <span>

namespace gyre::cosmoflow {

inline constexpr std::uint64_t kCubeSymmetries = 48;

/// A view of `volume` [channels, size, size, size] in one of the 48 ways in which a cube can be turned and mirrored:
/// symmetry / 8 chooses the order of the axes, and each bit of symmetry % 8 mirrors one of them. 0 changes nothing.
at::Tensor turned(const at::Tensor& volume, std::uint64_t symmetry);

/// Copies of `volumes` [n, channels, size, size, size], each turned at random. How sample samples[i] is turned depends
/// on the seed, the step and the sample alone. The universe has no preferred direction, so the targets stay.
at::Tensor turned_at_random(const at::Tensor& volumes, std::span<const std::uint64_t> samples, std::uint64_t seed,
                            std::uint64_t step);

}  // namespace gyre::cosmoflow
