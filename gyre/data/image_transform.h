#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gyre/data/fields.h"
#include "gyre/data/formats/pixels.h"
#include "gyre/data/image_sampling.h"

namespace gyre::data {

/// Resizes, mirrors and normalises images: bilinear with antialiasing, by the weights of Pillow's resize (to whose
/// 8-bit values the results come within one), or to the nearest pixel, which are Pillow's values. Keeps its memory for
/// the next image. Not thread-safe: one per thread.
class ImageTransform {
 public:
  /// From the part of `pixels` that `sampling` says to `into`, as options and `type` (kUint8 or a float)
  /// say. `sampling` counts in `pixels` here: its region is all of them.
  void apply(const Pixels& pixels, const Sampling& sampling, const ImageOptions& options, ElementType type,
             std::span<std::byte> into);

 private:
  struct Axis {
    std::vector<std::uint32_t> first;
    std::vector<float> weights;
    std::size_t taps = 0;
  };

  static void plan(Axis& axis, double begin, double length, std::uint32_t available, std::uint32_t wanted);
  static void plan_nearest(Axis& axis, double begin, double length, std::uint32_t available, std::uint32_t wanted);
  void store_row(const ImageOptions& options, ElementType type, std::size_t y, std::span<std::byte> into);

  Axis across_;
  Axis down_;
  std::vector<float> spread_weights_;
  std::vector<float> line_;    // A row of the result's height and the image's width.
  std::vector<float> pixels_;  // A row of the result, kLanesPerPixel floats each.
  std::vector<float> planes_;  // The same as three planes.
  std::vector<const std::uint8_t*> rows_;
};

}  // namespace gyre::data
