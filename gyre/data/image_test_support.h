#pragma once

#include <gtest/gtest.h>
#include <png.h>

#include <cmath>
#include <csetjmp>
#include <cstdint>
#include <vector>

#include "gyre/base/bytes.h"
#include "gyre/data/formats/pixels.h"

namespace gyre::data::testing {

/// RGB pixels in memory of their own.
struct Picture {
  std::uint32_t width = 0;
  std::uint32_t height = 0;
  std::vector<std::uint8_t> values;

  Picture(std::uint32_t wide, std::uint32_t high)
      : width(wide), height(high), values(std::size_t{wide} * high * kPixelBytes + kReadableBehind) {}

  std::uint8_t& at(std::uint32_t x, std::uint32_t y, std::size_t c) {
    return values[(std::size_t{y} * width + x) * kPixelBytes + c];
  }
  Pixels view() const { return {values.data(), std::size_t{width} * kPixelBytes, width, height}; }
};

/// Waves of colour, with an edge here and there: something that a JPEG keeps well, and every place is unlike others.
inline Picture test_picture(std::uint32_t width, std::uint32_t height) {
  Picture picture(width, height);
  for (std::uint32_t y = 0; y < height; ++y) {
    for (std::uint32_t x = 0; x < width; ++x) {
      const double u = x;
      const double v = y;
      picture.at(x, y, 0) = static_cast<std::uint8_t>(127 + 120 * std::sin(u / 17 + v / 31));
      picture.at(x, y, 1) = static_cast<std::uint8_t>(127 + 120 * std::cos(u / 23 - v / 13));
      picture.at(x, y, 2) = static_cast<std::uint8_t>((x / 40 + y / 30) % 2 == 0 ? 60 : 190);
    }
  }
  return picture;
}

/// A PNG of `rows` as they are, in any of PNG's kinds: `palette` for indexed ones, RGB after RGB.
inline Bytes encode_png(std::uint32_t width, std::uint32_t height, int depth, int color,
                        const std::vector<std::uint8_t>& rows, bool interlaced = false,
                        const std::vector<std::uint8_t>& palette = {}) {
  Bytes bytes;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  png_set_write_fn(
      png, &bytes,
      [](png_structp to, png_bytep data, png_size_t size) {
        auto& all = *static_cast<Bytes*>(png_get_io_ptr(to));
        for (png_size_t i = 0; i < size; ++i) all.push_back(static_cast<std::byte>(data[i]));
      },
      nullptr);
  png_set_IHDR(png, info, width, height, depth, color, interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  std::vector<png_color> colors;
  for (std::size_t i = 0; i + 2 < palette.size(); i += 3) {
    colors.push_back({palette[i], palette[i + 1], palette[i + 2]});
  }
  if (!colors.empty()) png_set_PLTE(png, info, colors.data(), static_cast<int>(colors.size()));
  png_write_info(png, info);
  const std::size_t row_bytes = png_get_rowbytes(png, info);
  EXPECT_GE(rows.size(), row_bytes * height);
  std::vector<png_bytep> pointers;
  for (std::uint32_t y = 0; y < height; ++y) pointers.push_back(const_cast<png_bytep>(rows.data()) + y * row_bytes);
  png_write_image(png, pointers.data());
  png_write_end(png, info);
  png_destroy_write_struct(&png, &info);
  return bytes;
}

}  // namespace gyre::data::testing
