#pragma once

#include <cstdint>
#include <span>

#include "gyre/base/random.h"
#include "gyre/data/image_set.h"

namespace gyre::data {

/// Random changes to training images. What happens to an image depends on (seed, epoch, sample) only, never on the rank
/// that reads it or on the batch it is in.
struct Augmentation {
  bool flip = false;  ///< Mirror left and right with probability 1/2.
  bool shift =
      false;  ///< Move by up to 10 % of the side both ways, sub-pixel, linear interpolation, nearest-edge fill.
  std::uint64_t seed = 0;
};

/// Values of one image as a network takes them: planes, rows, columns; 0 to 1.
inline constexpr std::size_t kImageValues = kImageBytes;

/// Reads `samples` of `set`: image i to images[i * kImageValues …] (bytes / 255), its label to labels[i]. The spans
/// have exactly that size. Errors are those of ImageSet::read.
void read_images(const ImageSet& set, std::span<const std::uint64_t> samples, const Augmentation& augmentation,
                 std::uint64_t epoch, std::span<float> images, std::span<std::int64_t> labels);

/// Mirrors every row of an image in place.
void flip_image(std::span<float> image);

/// Moves an image in place by (rows, columns), which may be fractions of a pixel: positive is down and right.
void shift_image(std::span<float> image, float rows, float columns);

}  // namespace gyre::data
