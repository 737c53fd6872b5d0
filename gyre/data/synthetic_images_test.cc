// Benchmarks and trainings without a download stand on these images: the same for everybody, about as large as
// ImageNet's, and their classes can be told apart.
#include "gyre/data/synthetic_images.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/data/formats/jpeg.h"

namespace gyre::data {
namespace {

TEST(SyntheticImages, an_image_follows_from_seed_set_and_index_alone) {
  const SyntheticImageOptions options{.seed = 3, .long_side = 64};
  const SyntheticImage first = synthetic_image(options, 0, 17);
  EXPECT_EQ(first.label, 7U);
  EXPECT_EQ(synthetic_image(options, 0, 17).jpeg, first.jpeg);
  EXPECT_NE(synthetic_image(options, 0, 27).jpeg, first.jpeg);
  EXPECT_NE(synthetic_image(options, 1, 17).jpeg, first.jpeg);
  EXPECT_NE(synthetic_image({.seed = 4, .long_side = 64}, 0, 17).jpeg, first.jpeg);
  JpegDecoder decoder;
  const ImageSize size = decoder.open(first.jpeg);
  EXPECT_EQ(size.width, first.width);
  EXPECT_EQ(size.height, first.height);
}

TEST(SyntheticImages, they_are_about_as_large_as_imagenets) {
  double bytes = 0;
  double pixels = 0;
  constexpr int kImages = 24;
  for (std::uint64_t i = 0; i < kImages; ++i) {
    const SyntheticImage image = synthetic_image({}, 0, i);
    bytes += static_cast<double>(image.jpeg.size());
    pixels += double(image.width) * image.height;
  }
  EXPECT_NEAR(bytes / kImages, 110'000, 30'000);
  EXPECT_NEAR(pixels / kImages, 181'000, 60'000);
}

/// How much colour of each hue there is in an image's saturated pixels.
std::array<double, 10> hues_of(const Bytes& jpeg) {
  JpegDecoder decoder;
  ScratchBuffer buffer;
  const ImageSize size = decoder.open(jpeg);
  const Pixels pixels = decoder.decode({0, 0, size.width, size.height}, 1, buffer);
  std::array<double, 10> hues{};
  for (std::uint32_t i = 0; i < size.width * size.height; ++i) {
    const std::uint8_t* const p = pixels.data + std::size_t{i} * 3;
    const int most = std::max({p[0], p[1], p[2]});
    const int least = std::min({p[0], p[1], p[2]});
    if (most - least < 90) continue;
    const double range = most - least;
    double hue = most == p[0]   ? (p[1] - p[2]) / range
                 : most == p[1] ? 2 + (p[2] - p[0]) / range
                                : 4 + (p[0] - p[1]) / range;
    hue = std::fmod(hue / 6 + 1.05, 1.0);
    hues.at(static_cast<std::size_t>(hue * 10) % 10) += 1;
  }
  return hues;
}

TEST(SyntheticImages, ten_classes_can_be_told_by_the_hue_of_their_objects) {
  const SyntheticImageOptions options{.long_side = 96};
  int right = 0;
  for (std::uint64_t i = 0; i < 40; ++i) {
    const SyntheticImage image = synthetic_image(options, 0, i);
    const auto hues = hues_of(image.jpeg);
    const auto most = static_cast<std::uint32_t>(std::ranges::max_element(hues) - hues.begin());
    right += most == image.label * 3 % 10 ? 1 : 0;
  }
  EXPECT_GE(right, 36);
}

TEST(SyntheticImages, what_cannot_be_made_is_refused) {
  EXPECT_THROW(synthetic_image({.classes = 0}, 0, 0), Error);
  EXPECT_THROW(synthetic_image({.classes = 1001}, 0, 0), Error);
  EXPECT_THROW(synthetic_image({.long_side = 8}, 0, 0), Error);
}

}  // namespace
}  // namespace gyre::data
