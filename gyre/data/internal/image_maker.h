#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "gyre/base/random.h"
#include "gyre/data/fields.h"
#include "gyre/data/formats/image.h"
#include "gyre/data/image_transform.h"
#include "gyre/data/scratch_buffer.h"
#include "gyre/data/stages.h"

namespace gyre::data::internal {

/// From an image's bytes to its place in a batch. Not thread-safe: one per thread.
class ImageMaker {
 public:
  explicit ImageMaker(const std::shared_ptr<MemoryBudget>& budget, std::uint64_t most_pixels = kMostPixels)
      : decoder_(most_pixels), buffer_(budget) {}

  /// Decodes what `options` take of the image `stored` (JPEG or PNG; raw pixels where `layout` says how they lie), and
  /// writes what they make of it. Errors are those of ImageDecoder.
  void make(std::span<const std::byte> stored, const PixelLayout* layout, const ImageOptions& options, ElementType type,
            Random random, StageClock& clock, std::span<std::byte> into);

  std::size_t scratch_bytes() const { return buffer_.capacity_bytes(); }

 private:
  Pixels decode(const ImageOptions& options, Sampling& sampling);
  Pixels arrange(std::span<const std::byte> stored, const PixelLayout& layout);

  ImageDecoder decoder_;
  ImageTransform transform_;
  ScratchBuffer buffer_;
};

}  // namespace gyre::data::internal
