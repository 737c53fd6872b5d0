#pragma once

#include <cstddef>
#include <cstdint>

namespace gyre::data {

struct ImageSize {
  std::uint32_t width = 0;
  std::uint32_t height = 0;
};

/// A part of an image, in whole pixels from its upper left corner.
struct PixelRegion {
  std::uint32_t left = 0;
  std::uint32_t top = 0;
  std::uint32_t width = 0;
  std::uint32_t height = 0;
};

/// A view of RGB pixels, a byte per value, the values of a pixel together; rows are `row_bytes` apart. Behind the last
/// row at least kReadableBehind bytes can be read.
struct Pixels {
  const std::uint8_t* data = nullptr;
  std::size_t row_bytes = 0;
  std::uint32_t width = 0;
  std::uint32_t height = 0;

  const std::uint8_t* row(std::size_t y) const { return data + y * row_bytes; }
};

inline constexpr std::size_t kPixelBytes = 3;
inline constexpr std::size_t kReadableBehind = 64;

/// More than this is refused before memory is allocated for it: no camera makes it, but a few damaged bytes do.
inline constexpr std::uint64_t kMostPixels = std::uint64_t{1} << 28;

}  // namespace gyre::data
