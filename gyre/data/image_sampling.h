#pragma once

#include <array>
#include <cstdint>

#include "gyre/base/random.h"
#include "gyre/data/formats/pixels.h"

namespace gyre::data {

enum class Resample {
  kBilinear,  ///< With antialiasing, as Pillow's.
  kNearest,   ///< One pixel each, as Pillow's NEAREST: for masks, whose values must not be mixed.
};

/// What is made of each image. The defaults are those with which ResNet-50 is trained on ImageNet.
struct ImageOptions {
  std::uint32_t width = 224;  ///< Of the result, in pixels.
  std::uint32_t height = 224;
  /// True: a random area of random shape, mirrored or not. False: the shorter side becomes `resize` pixels (0: the
  /// image keeps its size), and the middle is cut out.
  bool augment = false;
  std::uint32_t resize = 256;
  Resample resample = Resample::kBilinear;
  double least_area = 0.08;  ///< Of the image's.
  double most_area = 1;
  double least_aspect = 3.0 / 4;  ///< Width by height.
  double most_aspect = 4.0 / 3;
  double mirror_probability = 0.5;
  /// Whether JPEG images are decoded at 1/2, 1/4 or 1/8 of their size where that leaves at least as many pixels as the
  /// result has. It saves time; values differ a little from those of the whole size. Not with kNearest.
  bool reduced_decode = true;
  bool channels_first = true;               ///< [3, height, width], else [height, width, 3].
  std::array<float, 3> mean{};              ///< Of red, green, blue, from 0 to 1. (value / 255 - mean) / deviation;
  std::array<float, 3> deviation{1, 1, 1};  ///< 8-bit results are not changed so.
};

/// Error(kInvalidArgument) says what is out of range.
void check_image_options(const ImageOptions& options);

/// Which part of an image becomes the result.
struct Sampling {
  /// In pixels of the image; edges may lie between pixels.
  double left = 0;
  double top = 0;
  double width = 0;
  double height = 0;
  /// No pixel beyond it counts: the random area itself, or whatever of the image the filter reaches.
  PixelRegion region;
  bool mirrored = false;
};

/// Draws from `random` as options.augment wants it: as torchvision's RandomResizedCrop and RandomHorizontalFlip (ten
/// attempts, then as much of the middle as the aspect allows). Else as Resize and CenterCrop. `size`: at least 1 x 1.
/// Error(kInvalidArgument) for an image that is smaller than what is cut out, where it is not resized.
Sampling choose_sampling(const ImageOptions& options, ImageSize size, Random& random);

/// The source of one sample's random choices in one epoch, the same on every rank and thread.
Random random_of_sample(std::uint64_t seed, std::uint64_t epoch, std::uint64_t sample);

}  // namespace gyre::data
