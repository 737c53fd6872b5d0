// Augmentation keyed by the sample is what lets runs with different numbers of ranks be compared.
#include "gyre/data/image_augmentation.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <span>
#include <vector>

#include "gyre/base/random.h"

namespace gyre::data {
namespace {

constexpr PlanarShape kShape{.channels = 3, .height = 24, .width = 32};

/// `count` images of random bytes.
std::vector<std::byte> random_images(std::size_t count) {
  std::vector<std::byte> images(count * kShape.values());
  Random random(11);
  for (std::byte& value : images) value = static_cast<std::byte>(random.next_u32() & 0xff);
  return images;
}

std::vector<float> images_of(std::span<const std::byte> set, const std::vector<std::uint64_t>& samples,
                             const Augmentation& augmentation, std::uint64_t epoch) {
  std::vector<std::byte> pixels;
  for (const std::uint64_t sample : samples) {
    const auto image = set.subspan(sample * kShape.values(), kShape.values());
    pixels.insert(pixels.end(), image.begin(), image.end());
  }
  std::vector<float> images(pixels.size());
  augment_images(pixels, kShape, samples, augmentation, epoch, images);
  return images;
}

TEST(ImageAugmentation, values_are_the_bytes_over_255) {
  const std::vector<std::byte> set = random_images(3);
  const std::vector<float> images = images_of(set, {2}, {}, 0);
  for (std::size_t i = 0; i < images.size(); ++i) {
    EXPECT_EQ(images[i], static_cast<float>(set[2 * kShape.values() + i]) / 255.0F);
  }
}

TEST(ImageAugmentation, what_happens_to_a_sample_does_not_depend_on_its_batch) {
  const std::vector<std::byte> set = random_images(8);
  const Augmentation both{.flip = true, .shift = true, .seed = 9};
  const std::vector<float> together = images_of(set, {0, 1, 2, 3, 4, 5, 6, 7}, both, 1);
  for (std::uint64_t sample = 0; sample < 8; ++sample) {
    const auto begin = together.begin() + static_cast<std::ptrdiff_t>(sample * kShape.values());
    const std::vector<float> in_batch(begin, begin + static_cast<std::ptrdiff_t>(kShape.values()));
    EXPECT_EQ(images_of(set, {sample}, both, 1), in_batch);
    EXPECT_NE(images_of(set, {sample}, both, 2), in_batch) << "another epoch draws anew";
  }
}

TEST(ImageAugmentation, about_half_of_the_images_are_mirrored) {
  const std::vector<std::byte> set = random_images(100);
  int mirrored = 0;
  for (std::uint64_t sample = 0; sample < 100; ++sample) {
    const std::vector<float> plain = images_of(set, {sample}, {}, 0);
    std::vector<float> changed = images_of(set, {sample}, {.flip = true, .seed = 4}, 0);
    if (changed == plain) continue;
    flip_image(changed, kShape);
    EXPECT_EQ(changed, plain);
    ++mirrored;
  }
  EXPECT_GT(mirrored, 30);
  EXPECT_LT(mirrored, 70);
}

TEST(ImageAugmentation, a_shift_by_whole_pixels_moves_them_and_repeats_the_edge) {
  std::vector<float> image(kShape.values());
  for (std::size_t i = 0; i < kShape.values(); ++i) image[i] = static_cast<float>(i);
  const std::vector<float> before = image;
  shift_image(image, kShape, 2.0F, -3.0F);
  for (std::size_t channel = 0; channel < 3; ++channel) {
    for (std::size_t y = 0; y < kShape.height; ++y) {
      for (std::size_t x = 0; x < kShape.width; ++x) {
        const std::size_t from_y = y < 2 ? 0 : y - 2;
        const std::size_t from_x = std::min<std::size_t>(x + 3, kShape.width - 1);
        const auto at = [&](std::size_t row, std::size_t column) {
          return (channel * kShape.height + row) * kShape.width + column;
        };
        EXPECT_EQ(image[at(y, x)], before[at(from_y, from_x)]);
      }
    }
  }
}

TEST(ImageAugmentation, a_shift_by_half_a_pixel_averages_neighbours) {
  std::vector<float> image(kShape.values(), 0.0F);
  image[5] = 1.0F;  // Row 0, column 5.
  shift_image(image, kShape, 0.0F, 0.5F);
  EXPECT_EQ(image[5], 0.5F);
  EXPECT_EQ(image[6], 0.5F);
  EXPECT_EQ(image[4], 0.0F);
  EXPECT_EQ(image[7], 0.0F);
}

}  // namespace
}  // namespace gyre::data
