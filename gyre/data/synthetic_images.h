#pragma once

#include <cstdint>

#include "gyre/base/bytes.h"

namespace gyre::data {

struct SyntheticImageOptions {
  std::uint64_t seed = 0;
  std::uint32_t classes = 10;     ///< 1 to kMostSyntheticClasses.
  std::uint32_t long_side = 500;  ///< Of most images, in pixels; from 16 on.
};

inline constexpr std::uint32_t kMostSyntheticClasses = 1000;

struct SyntheticImage {
  Bytes jpeg;
  std::uint32_t width = 0;
  std::uint32_t height = 0;
  std::uint32_t label = 0;  ///< index % classes.
};

/// A photograph's stand-in: objects of one kind strewn over a cloudy background with grain. Sizes, aspects and, at a
/// long side of 500, bytes are about those of ImageNet's images. What kind the objects are is the class, in the part of
/// an image as in the whole: colour, shape and texture tell the first ten apart, the background's colour the next
/// hundred, the texture's width all. Follows from options, `stream` (which set: training, validation) and `index`
/// alone. Error(kInvalidArgument).
SyntheticImage synthetic_image(const SyntheticImageOptions& options, std::uint32_t stream, std::uint64_t index);

}  // namespace gyre::data
