// The network must see the part of the image that was drawn, in the size it was promised, with the values that others'
// loaders give it; and the same ones whoever computes them.
#include "gyre/data/image_transform.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/data/image_test_support.h"

namespace gyre::data {
namespace {

using ::testing::HasSubstr;
using testing::Picture;
using testing::test_picture;

template <typename T>
std::vector<T> transformed(const Picture& picture, const Sampling& sampling, const ImageOptions& options,
                           ElementType type) {
  std::vector<T> values(std::size_t{options.width} * options.height * 3);
  const PixelRegion& region = sampling.region;
  const Pixels part{picture.values.data() + (region.top * picture.width + region.left) * kPixelBytes,
                    picture.width * kPixelBytes, region.width, region.height};
  Sampling relative = sampling;
  relative.left -= region.left;
  relative.top -= region.top;
  ImageTransform transform;
  transform.apply(part, relative, options, type, std::as_writable_bytes(std::span(values)));
  return values;
}

/// One value of the result, by the definition: a triangle as wide as the scale, over the pixels of the region.
double expected_value(const Picture& picture, const Sampling& sampling, const ImageOptions& options, std::uint32_t x,
                      std::uint32_t y, std::size_t c) {
  const auto weights = [](double first, double length, std::uint32_t wanted, std::uint32_t at, std::uint32_t begin,
                          std::uint32_t count) {
    const double scale = length / wanted;
    const double reach = std::max(1.0, scale);
    std::vector<double> all;
    for (std::uint32_t i = 0; i < count; ++i) {
      all.push_back(std::max(0.0, 1 - std::abs((begin + i + 0.5 - (first + (at + 0.5) * scale)) / reach)));
    }
    return all;
  };
  const PixelRegion& region = sampling.region;
  const std::uint32_t column = sampling.mirrored ? options.width - 1 - x : x;
  const auto across = weights(sampling.left, sampling.width, options.width, column, region.left, region.width);
  const auto down = weights(sampling.top, sampling.height, options.height, y, region.top, region.height);
  double sum = 0;
  double total = 0;
  for (std::uint32_t v = 0; v < region.height; ++v) {
    for (std::uint32_t u = 0; u < region.width; ++u) {
      const double weight = across[u] * down[v];
      const std::size_t at = ((region.top + v) * std::size_t{picture.width} + region.left + u) * 3 + c;
      sum += weight * picture.values[at];
      total += weight;
    }
  }
  return sum / total;
}

TEST(ImageTransform, values_are_those_of_the_triangle_filter_however_large_the_part_is) {
  const Picture picture = test_picture(90, 70);
  ImageOptions options{.width = 24, .height = 17, .augment = true};
  options.mean = {0.485F, 0.456F, 0.406F};
  options.deviation = {0.229F, 0.224F, 0.225F};
  Random random(3);
  for (int round = 0; round < 6; ++round) {
    Sampling sampling = choose_sampling(options, {90, 70}, random);
    if (round == 5) sampling = {10, 20, 6, 4, {10, 20, 6, 4}, false};  // Enlarged.
    const auto values = transformed<float>(picture, sampling, options, ElementType::kFloat32);
    for (std::uint32_t y = 0; y < options.height; ++y) {
      for (std::uint32_t x = 0; x < options.width; ++x) {
        for (std::size_t c = 0; c < 3; ++c) {
          const double pixel = expected_value(picture, sampling, options, x, y, c);
          const double expected = (pixel / 255 - double{options.mean[c]}) / double{options.deviation[c]};
          ASSERT_NEAR(values[(c * options.height + y) * options.width + x], expected, 1e-3) << x << ", " << y;
        }
      }
    }
  }
}

TEST(ImageTransform, layouts_and_types_hold_the_same_values) {
  const Picture picture = test_picture(60, 50);
  ImageOptions options{.width = 33, .height = 21};
  options.resize = 40;
  Random random(1);
  const Sampling sampling = choose_sampling(options, {60, 50}, random);
  const auto floats = transformed<float>(picture, sampling, options, ElementType::kFloat32);
  const auto halves = transformed<std::uint16_t>(picture, sampling, options, ElementType::kBfloat16);
  const auto bytes = transformed<std::uint8_t>(picture, sampling, options, ElementType::kUint8);
  options.channels_first = false;
  const auto together = transformed<float>(picture, sampling, options, ElementType::kFloat32);
  const auto bytes_together = transformed<std::uint8_t>(picture, sampling, options, ElementType::kUint8);
  const std::size_t plane = 33 * 21;
  for (std::size_t i = 0; i < floats.size(); ++i) {
    EXPECT_NEAR(std::bit_cast<float>(std::uint32_t{halves[i]} << 16), floats[i], 1.0 / 256);
    EXPECT_NEAR(bytes[i], floats[i] * 255, 0.51);
    const std::size_t other = i % plane * 3 + i / plane;
    EXPECT_EQ(together[other], floats[i]);
    EXPECT_EQ(bytes_together[other], bytes[i]);
  }
}

TEST(ImageTransform, an_image_of_the_right_size_stays_as_it_is) {
  const Picture picture = test_picture(40, 40);
  const ImageOptions options{.width = 40, .height = 40, .resize = 40, .channels_first = false};
  Random random(1);
  const auto bytes =
      transformed<std::uint8_t>(picture, choose_sampling(options, {40, 40}, random), options, ElementType::kUint8);
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), picture.values.begin()));
}

TEST(ImageSampling, areas_and_shapes_cover_their_ranges_and_stay_inside) {
  const ImageOptions options{.augment = true};
  double least = 1;
  double most = 0;
  int mirrored = 0;
  for (std::uint64_t sample = 0; sample < 2000; ++sample) {
    Random random = random_of_sample(7, 1, sample);
    const Sampling sampling = choose_sampling(options, {500, 375}, random);
    const PixelRegion& region = sampling.region;
    ASSERT_LE(region.left + region.width, 500U);
    ASSERT_LE(region.top + region.height, 375U);
    const double area = double(region.width) * region.height / (500 * 375);
    const double aspect = double(region.width) / region.height;
    EXPECT_GT(aspect, 0.72);
    EXPECT_LT(aspect, 1.38);
    least = std::min(least, area);
    most = std::max(most, area);
    mirrored += sampling.mirrored ? 1 : 0;
  }
  EXPECT_NEAR(least, 0.08, 0.01);
  EXPECT_GT(most, 0.97);
  EXPECT_NEAR(mirrored, 1000, 100);
}

TEST(ImageSampling, an_image_that_no_area_fits_gives_its_middle) {
  const ImageOptions options{.augment = true, .least_area = 0.9};
  Random random(1);
  const Sampling wide = choose_sampling(options, {1000, 30}, random);
  EXPECT_EQ(wide.region.width, 40U);
  EXPECT_EQ(wide.region.left, 480U);
  const Sampling high = choose_sampling(options, {30, 1000}, random);
  EXPECT_EQ(high.region.height, 40U);
  const Sampling point = choose_sampling(options, {1, 1}, random);
  EXPECT_EQ(point.region.width, 1U);
}

TEST(ImageSampling, evaluation_resizes_the_shorter_side_and_takes_the_middle) {
  const ImageOptions options;  // 256, then 224.
  Random random(1);
  const Sampling sampling = choose_sampling(options, {500, 375}, random);
  // 500 x 375 becomes 341 x 256, from which columns 58 to 282 and rows 16 to 240 are taken.
  EXPECT_NEAR(sampling.left, 58 * 500.0 / 341, 1e-9);
  EXPECT_NEAR(sampling.top, 16 * 375.0 / 256, 1e-9);
  EXPECT_NEAR(sampling.width, 224 * 500.0 / 341, 1e-9);
  EXPECT_LT(sampling.region.left, 85U);
  EXPECT_FALSE(sampling.mirrored);
}

TEST(ImageSampling, what_is_drawn_depends_on_seed_epoch_and_sample_and_on_nothing_else) {
  const auto first = [](std::uint64_t seed, std::uint64_t epoch, std::uint64_t sample) {
    return random_of_sample(seed, epoch, sample).next_u64();
  };
  EXPECT_EQ(first(1, 2, 3), first(1, 2, 3));
  EXPECT_NE(first(1, 2, 3), first(2, 2, 3));
  EXPECT_NE(first(1, 2, 3), first(1, 3, 3));
  EXPECT_NE(first(1, 2, 3), first(1, 2, 4));
  // Published values: a run that is repeated with a later version must see the same images.
  EXPECT_EQ(first(0, 0, 0), 1682075468713528978U);
}

TEST(ImageSampling, options_that_cannot_be_are_refused) {
  const auto error_of = [](const ImageOptions& options) -> std::string {
    try {
      check_image_options(options);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(error_of({}), "no error");
  EXPECT_THAT(error_of({.width = 0}), HasSubstr("0 x 224"));
  EXPECT_THAT(error_of({.resize = 200}), HasSubstr("resized to 200"));
  EXPECT_THAT(error_of({.least_area = 0}), HasSubstr("area from 0 to 1"));
  EXPECT_THAT(error_of({.least_aspect = std::nan("")}), HasSubstr("aspect"));
  EXPECT_THAT(error_of({.mirror_probability = 2}), HasSubstr("probability 2"));
  EXPECT_THAT(error_of({.deviation = {1, 0, 1}}), HasSubstr("standard deviation 0"));
}

}  // namespace
}  // namespace gyre::data
