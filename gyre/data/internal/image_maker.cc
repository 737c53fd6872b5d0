#include "gyre/data/internal/image_maker.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "gyre/base/error.h"

namespace gyre::data::internal {
namespace {

/// The first and the length of `region`'s side in an image of 1/`divisor` of the size.
void reduce(std::uint32_t& first, std::uint32_t& length, std::uint32_t divisor) {
  const std::uint32_t last = (first + length + divisor - 1) / divisor;
  first /= divisor;
  length = last - first;
}

/// `sampling` with its region as the whole image.
void make_relative(Sampling& sampling) {
  sampling.left -= sampling.region.left;
  sampling.top -= sampling.region.top;
}

}  // namespace

Pixels ImageMaker::decode(const ImageOptions& options, Sampling& sampling) {
  const double spare = std::min(sampling.width / options.width, sampling.height / options.height);
  const unsigned divisor =
      options.reduced_decode && options.resample != Resample::kNearest ? decoder_.divisor(spare) : 1;
  if (divisor > 1) {
    reduce(sampling.region.left, sampling.region.width, divisor);
    reduce(sampling.region.top, sampling.region.height, divisor);
    for (double* length : {&sampling.left, &sampling.top, &sampling.width, &sampling.height}) *length /= divisor;
  }
  make_relative(sampling);
  return decoder_.decode(sampling.region, divisor, buffer_);
}

Pixels ImageMaker::arrange(std::span<const std::byte> stored, const PixelLayout& layout) {
  const std::size_t count = std::size_t{layout.size.width} * layout.size.height;
  if (stored.size() != count * layout.channels || (layout.channels != 1 && layout.channels != kPixelBytes)) {
    throw Error(ErrorCode::kCorruptData, fmt::format("{} bytes are no {} x {} pixels of {} values", stored.size(),
                                                     layout.size.width, layout.size.height, layout.channels));
  }
  const auto memory = buffer_.take(count * kPixelBytes + kReadableBehind);
  auto* const pixels = reinterpret_cast<std::uint8_t*>(memory.data());
  for (std::size_t c = 0; c < kPixelBytes; ++c) {
    const std::size_t channel = layout.channels == 1 ? 0 : c;
    const std::size_t first = layout.planes ? channel * count : channel;
    const std::size_t step = layout.planes ? 1 : layout.channels;
    for (std::size_t i = 0; i < count; ++i) {
      pixels[i * kPixelBytes + c] = std::to_integer<std::uint8_t>(stored[first + i * step]);
    }
  }
  return {pixels, layout.size.width * kPixelBytes, layout.size.width, layout.size.height};
}

void ImageMaker::make(std::span<const std::byte> stored, const PixelLayout* layout, const ImageOptions& options,
                      ElementType type, Random random, StageClock& clock, std::span<std::byte> into) {
  const ImageSize size = layout != nullptr ? layout->size : decoder_.open(stored);
  Sampling sampling = choose_sampling(options, size, random);
  Pixels pixels;
  if (layout != nullptr) {
    const Pixels whole = arrange(stored, *layout);
    const PixelRegion& region = sampling.region;
    pixels = {whole.row(region.top) + region.left * kPixelBytes, whole.row_bytes, region.width, region.height};
    make_relative(sampling);
  } else {
    pixels = decode(options, sampling);
  }
  clock.finish(Stage::kDecode);
  transform_.apply(pixels, sampling, options, type, into);
  clock.finish(Stage::kTransform);
}

}  // namespace gyre::data::internal
