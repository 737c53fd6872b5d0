#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace gyre::data {

/// Random changes to training images. What happens to an image depends on (seed, epoch, sample) only, never on the rank
/// that reads it or on the batch it is in.
struct Augmentation {
  bool flip = false;  ///< Mirror left and right with probability 1/2.
  bool shift =
      false;  ///< Move by up to 10 % of the side both ways, sub-pixel, linear interpolation, nearest-edge fill.
  std::uint64_t seed = 0;
};

/// Of images in planes: `channels` planes of `height` rows of `width` values.
struct PlanarShape {
  std::size_t channels = 3;
  std::size_t height = 0;
  std::size_t width = 0;

  std::size_t values() const { return channels * height * width; }
};

/// Turns image i of `pixels` (shape.values() bytes each) into floats from 0 to 1 (bytes / 255) at
/// images[i * shape.values() …], and changes it as sample samples[i] is changed in this epoch. The spans have exactly
/// that size.
void augment_images(std::span<const std::byte> pixels, const PlanarShape& shape, std::span<const std::uint64_t> samples,
                    const Augmentation& augmentation, std::uint64_t epoch, std::span<float> images);

/// Mirrors every row of an image in place.
void flip_image(std::span<float> image, const PlanarShape& shape);

/// Moves an image in place by (rows, columns), which may be fractions of a pixel: positive is down and right.
void shift_image(std::span<float> image, const PlanarShape& shape, float rows, float columns);

}  // namespace gyre::data
