// What a network sees must be the image, in every kind that JPEG and PNG have; a part of it must be that part of the
// whole; and a damaged file must end in a sentence, never in gray pixels or a jump past somebody's destructor.
#include "gyre/data/formats/image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
// After cstdio.
#include <jpeglib.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "gyre/base/error.h"
#include "gyre/data/image_test_support.h"

namespace gyre::data {
namespace {

using testing::encode_png;
using ::testing::HasSubstr;
using testing::Picture;
using testing::test_picture;

struct JpegKind {
  J_COLOR_SPACE space = JCS_YCbCr;
  int components = 3;
  int across = 2;  ///< Sampling of the first component.
  int down = 2;
  bool progressive = false;
};

/// A JPEG of `values` (components of each pixel) as they are, by libjpeg itself.
Bytes encode(const JpegKind& kind, std::uint32_t width, std::uint32_t height, const std::vector<std::uint8_t>& values) {
  jpeg_compress_struct compress{};
  jpeg_error_mgr errors{};
  compress.err = jpeg_std_error(&errors);
  jpeg_create_compress(&compress);
  unsigned char* encoded = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&compress, &encoded, &size);
  compress.image_width = width;
  compress.image_height = height;
  compress.input_components = kind.components;
  compress.in_color_space = kind.components == 1 ? JCS_GRAYSCALE : kind.components == 4 ? JCS_CMYK : JCS_RGB;
  jpeg_set_defaults(&compress);
  jpeg_set_colorspace(&compress, kind.space);
  jpeg_set_quality(&compress, 95, TRUE);
  compress.comp_info[0].h_samp_factor = kind.across;
  compress.comp_info[0].v_samp_factor = kind.down;
  if (kind.progressive) jpeg_simple_progression(&compress);
  jpeg_start_compress(&compress, TRUE);
  for (std::uint32_t y = 0; y < height; ++y) {
    auto* row =
        const_cast<JSAMPROW>(values.data()) + std::size_t{y} * width * static_cast<std::size_t>(kind.components);
    jpeg_write_scanlines(&compress, &row, 1);
  }
  jpeg_finish_compress(&compress);
  jpeg_destroy_compress(&compress);
  const auto bytes = std::as_bytes(std::span(encoded, size));
  Bytes result(bytes.begin(), bytes.end());
  std::free(encoded);
  return result;
}

/// The whole image where `region` is empty.
std::vector<std::uint8_t> decoded(const Bytes& stored, PixelRegion region = {}, unsigned divisor = 1) {
  ImageDecoder decoder;
  ScratchBuffer buffer;
  const ImageSize size = decoder.open(stored);
  if (region.width == 0) region = {0, 0, (size.width + divisor - 1) / divisor, (size.height + divisor - 1) / divisor};
  const Pixels pixels = decoder.decode(region, divisor, buffer);
  EXPECT_EQ(pixels.width, region.width);
  EXPECT_EQ(pixels.height, region.height);
  std::vector<std::uint8_t> values;
  for (std::uint32_t y = 0; y < pixels.height; ++y) {
    values.insert(values.end(), pixels.row(y), pixels.row(y) + pixels.width * kPixelBytes);
  }
  return values;
}

int largest_difference(const std::vector<std::uint8_t>& a, const std::vector<std::uint8_t>& b, std::size_t count) {
  int most = 0;
  for (std::size_t i = 0; i < count; ++i) most = std::max(most, std::abs(a.at(i) - b.at(i)));
  return most;
}

std::string error_of(const Bytes& stored) {
  try {
    static_cast<void>(decoded(stored));
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Image, a_jpeg_comes_back_nearly_as_it_was) {
  const Picture picture = test_picture(301, 199);
  const Bytes stored = encode_jpeg(picture.view(), 98);
  const auto values = decoded(stored);
  ASSERT_EQ(values.size(), std::size_t{301} * 199 * 3);
  double sum = 0;
  for (std::size_t i = 0; i < values.size(); ++i) sum += std::abs(values[i] - picture.values[i]);
  EXPECT_LT(sum / static_cast<double>(values.size()), 3);
}

TEST(Image, a_part_of_a_jpeg_is_that_part_of_the_whole_to_the_bit) {
  const Picture picture = test_picture(203, 150);
  const std::vector<std::uint8_t> values(picture.values.begin(), picture.values.end());
  for (const JpegKind& kind : {JpegKind{}, JpegKind{.progressive = true}, JpegKind{.down = 1},
                               JpegKind{.across = 1, .down = 1}, JpegKind{.across = 1, .down = 2}}) {
    const Bytes stored = encode(kind, 203, 150, values);
    for (const unsigned divisor : {1U, 2U, 4U, 8U}) {
      const auto whole = decoded(stored, {}, divisor);
      const std::uint32_t width = (203 + divisor - 1) / divisor;
      const std::uint32_t height = (150 + divisor - 1) / divisor;
      for (const PixelRegion region :
           {PixelRegion{0, 0, 5, 5}, PixelRegion{3, 7, width - 3, height - 7},
            PixelRegion{width / 2, height / 3, width / 4, height / 2}, PixelRegion{width - 1, height - 1, 1, 1}}) {
        const auto part = decoded(stored, region, divisor);
        for (std::uint32_t y = 0; y < region.height; ++y) {
          const auto row = whole.begin() + ((region.top + y) * width + region.left) * 3;
          ASSERT_TRUE(std::equal(row, row + region.width * 3, part.begin() + y * region.width * 3))
              << kind.across << "x" << kind.down << (kind.progressive ? " progressive" : "") << " 1/" << divisor
              << ", from " << region.left << ", " << region.top << ", row " << y;
        }
      }
    }
  }
}

TEST(Image, gray_and_printers_inks_become_red_green_and_blue) {
  const std::vector<std::uint8_t> gray(64 * 48, 90);
  const auto from_gray =
      decoded(encode({.space = JCS_GRAYSCALE, .components = 1, .across = 1, .down = 1}, 64, 48, gray));
  EXPECT_TRUE(std::ranges::all_of(from_gray, [](std::uint8_t value) { return std::abs(value - 90) <= 1; }));
  // As Photoshop writes it: complements. Full cyan, half magenta, no yellow, a tenth of black.
  std::vector<std::uint8_t> inks;
  for (int i = 0; i < 64 * 48; ++i) inks.insert(inks.end(), {0, 128, 255, 230});
  for (const J_COLOR_SPACE space : {JCS_CMYK, JCS_YCCK}) {
    const auto values = decoded(encode({.space = space, .components = 4, .across = 1, .down = 1}, 64, 48, inks));
    EXPECT_NEAR(values[0], 0, 2);
    EXPECT_NEAR(values[1], 115, 2);
    EXPECT_NEAR(values[2], 230, 2);
  }
}

TEST(Image, a_jpeg_that_was_cut_off_is_an_error_wherever_it_was) {
  const Picture picture = test_picture(160, 120);
  for (const bool progressive : {false, true}) {
    const Bytes stored = encode({.progressive = progressive}, 160, 120, picture.values);
    for (std::size_t size = 3; size + 2 < stored.size(); size += 61) {
      EXPECT_THAT(error_of(Bytes(stored.begin(), stored.begin() + static_cast<std::ptrdiff_t>(size))),
                  HasSubstr("the data end too early"))
          << size;
    }
  }
}

TEST(Image, damage_in_a_jpeg_is_an_error_and_the_decoder_goes_on_with_the_next_one) {
  const Picture picture = test_picture(160, 120);
  const Bytes good = encode_jpeg(picture.view(), 90);
  ImageDecoder decoder;
  ScratchBuffer buffer;
  int errors = 0;
  for (std::size_t at = 200; at + 40 < good.size(); at += 97) {
    Bytes bad = good;
    for (std::size_t i = 0; i < 8; ++i) bad[at + i] = std::byte{0xff};  // A marker where there is none.
    try {
      decoder.open(bad);
      decoder.decode({0, 0, 160, 120}, 1, buffer);
    } catch (const Error& error) {
      ++errors;
      EXPECT_THAT(error.what(), HasSubstr("cannot be decoded"));
    }
    decoder.open(good);
    const Pixels pixels = decoder.decode({0, 0, 160, 120}, 1, buffer);
    EXPECT_NEAR(pixels.data[0], picture.values[0], 20);
  }
  EXPECT_GT(errors, 10);
}

TEST(Image, every_kind_of_png_becomes_rgb) {
  const Picture picture = test_picture(37, 21);
  EXPECT_EQ(largest_difference(decoded(encode_png(37, 21, 8, PNG_COLOR_TYPE_RGB, picture.values)), picture.values,
                               37 * 21 * 3),
            0);
  EXPECT_EQ(largest_difference(decoded(encode_png(37, 21, 8, PNG_COLOR_TYPE_RGB, picture.values, true)), picture.values,
                               37 * 21 * 3),
            0)
      << "interlaced";
  std::vector<std::uint8_t> with_alpha;
  std::vector<std::uint8_t> wide;
  for (std::size_t i = 0; i < std::size_t{37} * 21 * 3; ++i) {
    with_alpha.push_back(picture.values[i]);
    if (i % 3 == 2) with_alpha.push_back(static_cast<std::uint8_t>(i));
    wide.insert(wide.end(), {picture.values[i], picture.values[i]});  // v * 257 in 16 bits is v in 8.
  }
  for (const Bytes& stored : {encode_png(37, 21, 8, PNG_COLOR_TYPE_RGB_ALPHA, with_alpha),
                              encode_png(37, 21, 16, PNG_COLOR_TYPE_RGB, wide)}) {
    EXPECT_EQ(largest_difference(decoded(stored), picture.values, 37 * 21 * 3), 0);
  }
  // A row of eight pixels: 1 bit black and white, 4 bits from a palette, 16 bits of gray.
  using ::testing::ElementsAre;
  EXPECT_THAT(decoded(encode_png(8, 1, 1, PNG_COLOR_TYPE_GRAY, {0b10100000}), {0, 0, 3, 1}),
              ElementsAre(255, 255, 255, 0, 0, 0, 255, 255, 255));
  EXPECT_THAT(decoded(encode_png(2, 1, 4, PNG_COLOR_TYPE_PALETTE, {0x10}, false, {1, 2, 3, 200, 100, 50})),
              ElementsAre(200, 100, 50, 1, 2, 3));
  EXPECT_THAT(decoded(encode_png(1, 1, 16, PNG_COLOR_TYPE_GRAY, {0x80, 0x80})), ElementsAre(128, 128, 128));
}

TEST(Image, a_part_of_a_png_is_that_part) {
  const Picture picture = test_picture(50, 40);
  for (const bool interlaced : {false, true}) {
    const auto part = decoded(encode_png(50, 40, 8, PNG_COLOR_TYPE_RGB, picture.values, interlaced), {7, 11, 20, 9});
    Picture copy = picture;
    for (std::uint32_t y = 0; y < 9; ++y) {
      for (std::uint32_t x = 0; x < 60; ++x) EXPECT_EQ(part[y * 60 + x], copy.at(7 + x / 3, 11 + y, x % 3));
    }
  }
}

TEST(Image, a_damaged_png_is_an_error) {
  const Picture picture = test_picture(50, 40);
  const Bytes good = encode_png(50, 40, 8, PNG_COLOR_TYPE_RGB, picture.values);
  EXPECT_THAT(error_of(Bytes(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(good.size() / 2))),
              HasSubstr("the data end too early"));
  Bytes bad = good;
  bad[good.size() / 2] ^= std::byte{0x10};
  EXPECT_THAT(error_of(bad), HasSubstr("the PNG image cannot be decoded"));
}

TEST(Image, sizes_that_no_camera_makes_are_refused_before_memory_is_allocated) {
  Bytes jpeg = encode_jpeg(test_picture(16, 16).view(), 90);
  const std::string start = {'\xff', '\xc0', '\x00', '\x11', '\x08'};
  const auto header = std::ranges::search(as_text(jpeg), start);
  const auto at = static_cast<std::size_t>(header.begin() - as_text(jpeg).begin()) + start.size();
  for (std::size_t i = 0; i < 4; ++i) jpeg[at + i] = std::byte{0xfd};
  EXPECT_THAT(error_of(jpeg), HasSubstr("has 65021 x 65021 pixels"));
}

TEST(Image, what_is_neither_is_called_by_its_name) {
  const auto text = [](std::string_view words) { return Bytes(as_bytes(words).begin(), as_bytes(words).end()); };
  EXPECT_THAT(error_of(text("GIF89a...")), HasSubstr("a GIF image"));
  EXPECT_THAT(error_of(text("<html>404")),
              HasSubstr("the 9 bytes are neither a JPEG nor a PNG image; they are a text"));
  EXPECT_THAT(error_of(text("")), HasSubstr("empty"));
}

TEST(Image, memory_for_a_progressive_jpeg_counts_in_the_budget) {
  const Picture picture = test_picture(320, 240);
  const Bytes stored = encode({.progressive = true}, 320, 240, picture.values);
  const auto budget = std::make_shared<MemoryBudget>(300'000);
  ScratchBuffer buffer(budget);
  ImageDecoder decoder;
  decoder.open(stored);
  EXPECT_THROW(decoder.decode({0, 0, 320, 240}, 1, buffer), Error);  // 230,400 of pixels and as much of coefficients.
}

}  // namespace
}  // namespace gyre::data
