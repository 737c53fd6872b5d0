#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "gyre/data/formats/pixels.h"
#include "gyre/data/scratch_buffer.h"

namespace gyre::data {

/// Decodes PNG to RGB: gray and palettes are expanded, 16 bits are rounded to 8, transparency is dropped and gamma
/// ignored (as by Pillow's convert("RGB")). Not thread-safe: one per thread.
class PngDecoder {
 public:
  explicit PngDecoder(std::uint64_t most_pixels = kMostPixels);
  ~PngDecoder();
  PngDecoder(PngDecoder&&) noexcept;
  PngDecoder& operator=(PngDecoder&&) noexcept;

  /// Reads the header of `stored`, which must stay until decode() is done. Error(kCorruptData).
  ImageSize open(std::span<const std::byte> stored);

  /// Once after each open(): the pixels of `region`, in memory of `buffer`; what lies below it is not read.
  /// Error(kCorruptData) where the data are damaged or end too early.
  Pixels decode(const PixelRegion& region, ScratchBuffer& buffer);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace gyre::data
