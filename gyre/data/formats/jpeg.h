#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "gyre/base/bytes.h"
#include "gyre/data/formats/pixels.h"
#include "gyre/data/scratch_buffer.h"

namespace gyre::data {

/// Decodes JPEG (baseline and progressive; gray, RGB, YCbCr, CMYK and YCCK) to RGB, with the same values as Pillow: the
/// accurate inverse transform, smooth chroma. Orientation tags are not applied. Not thread-safe: one per thread.
class JpegDecoder {
 public:
  /// Images of more pixels are refused.
  explicit JpegDecoder(std::uint64_t most_pixels = kMostPixels);
  ~JpegDecoder();
  JpegDecoder(JpegDecoder&&) noexcept;
  JpegDecoder& operator=(JpegDecoder&&) noexcept;

  /// Reads the header of `stored`, which must stay until decode() is done. Error(kCorruptData, kUnsupported).
  ImageSize open(std::span<const std::byte> stored);

  /// Once after each open(): the pixels of `region` of the image, reduced to 1/`divisor` of its size (1, 2, 4 or 8;
  /// sizes round up), to which `region` refers; in memory of `buffer`. Rows below it are not read, so that damage there
  /// is not noticed. Error(kCorruptData) where the data are damaged or end too early.
  Pixels decode(const PixelRegion& region, unsigned divisor, ScratchBuffer& buffer);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// `pixels` as a JPEG with the usual halved chroma. `quality`: 1 to 100.
Bytes encode_jpeg(const Pixels& pixels, int quality);

}  // namespace gyre::data
