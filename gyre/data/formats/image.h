#pragma once

#include <cstddef>
#include <span>

#include "gyre/data/formats/jpeg.h"
#include "gyre/data/formats/pixels.h"
#include "gyre/data/formats/png.h"

namespace gyre::data {

/// Whether the first bytes of a file are those of a JPEG or PNG image.
bool looks_like_image(std::span<const std::byte> first);

/// Decodes JPEG and PNG, told by content, to RGB. Not thread-safe: one per thread.
class ImageDecoder {
 public:
  explicit ImageDecoder(std::uint64_t most_pixels = kMostPixels) : jpeg_(most_pixels), png_(most_pixels) {}

  /// Reads the header of `stored`, which must stay until decode() is done. Error(kUnsupported) where it is neither,
  /// saying what it looks like; kCorruptData; kResourceExhausted for more pixels than kMostPixels.
  ImageSize open(std::span<const std::byte> stored);

  /// The largest divisor of at most `most` that decode() knows for the opened image: 1, 2, 4 or 8 of JPEG, 1 of PNG.
  unsigned divisor(double most) const;

  /// Once after each open(): see JpegDecoder::decode and PngDecoder::decode.
  Pixels decode(const PixelRegion& region, unsigned divisor, ScratchBuffer& buffer);

 private:
  JpegDecoder jpeg_;
  PngDecoder png_;
  bool is_jpeg_ = false;
};

}  // namespace gyre::data
