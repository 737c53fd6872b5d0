#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace gyre::data::internal {

// The loops over pixels, in vectors of whatever width the processor has (Highway). Buffers may be written and read up
// to kKernelSlack elements beyond what counts.

inline constexpr std::size_t kKernelSlack = 64;
inline constexpr std::size_t kLanesPerPixel = 4;  // Red, green, blue, and one that nobody reads.

/// into[i] = the sum over k of weights[k] * rows[k][i], for `count` values.
void blend_rows(std::span<const std::uint8_t* const> rows, const float* weights, std::size_t count, float* into);

/// Which values of a line become one value of the result: those from `first` on, times weights[0 … taps).
struct Taps {
  std::span<const std::uint32_t> first;  ///< By value of the result.
  std::span<const float> weights;        ///< `taps` of each, zeros where there are fewer; from spread_weights().
  std::size_t taps = 0;
};

/// From `taps` weights of each value to the order in which blend_pixels() reads them: of two neighbours together, each
/// weight once per lane of a pixel.
void spread_weights(std::span<const float> weights, std::size_t taps, std::vector<float>& into);

/// A row of pixels of three floats becomes one of taps.first.size() pixels of kLanesPerPixel floats; `mirrored`: from
/// right to left.
void blend_pixels(const float* row, const Taps& taps, bool mirrored, float* into);

/// planes[c][i] = pixels[i * kLanesPerPixel + c] * scale[c] + shift[c], for `count` pixels. `past_caches`: straight to
/// memory where the addresses allow it, for what is not read again soon; finish_stores() makes it visible to other
/// threads.
void split_planes(const float* pixels, std::size_t count, std::span<const float, 3> scale,
                  std::span<const float, 3> shift, bool past_caches, std::span<float* const, 3> planes);
void finish_stores();

/// Rounds to the nearest, ties to even.
void to_bfloat16(const float* values, std::size_t count, std::uint16_t* into);

/// Rounds to the nearest from 0 to 255.
void to_uint8(const float* values, std::size_t count, std::uint8_t* into);

}  // namespace gyre::data::internal
