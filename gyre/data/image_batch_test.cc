// Augmentation keyed by the sample is what lets runs with different numbers of ranks be compared.
#include "gyre/data/image_batch.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "gyre/base/random.h"

namespace gyre::data {
namespace {

/// `count` images of random bytes; image i has the label i % 10.
ImageSet random_images(std::uint64_t count) {
  ImageRecords records;
  Random random(11);
  for (std::uint64_t i = 0; i < count * kImageBytes; ++i) {
    records.memory.push_back(static_cast<std::byte>(random.next_u32() & 0xff));
  }
  for (std::uint64_t i = 0; i < count; ++i) records.labels.push_back(static_cast<std::uint8_t>(i % 10));
  records.stride_bytes = kImageBytes;
  records.count = count;
  std::vector<ImageRecords> all;
  all.push_back(std::move(records));
  return ImageSet(std::move(all));
}

std::vector<float> images_of(const ImageSet& set, std::vector<std::uint64_t> samples, const Augmentation& augmentation,
                             std::uint64_t epoch) {
  std::vector<float> images(samples.size() * kImageValues);
  std::vector<std::int64_t> labels(samples.size());
  read_images(set, samples, augmentation, epoch, images, labels);
  for (std::size_t i = 0; i < samples.size(); ++i) EXPECT_EQ(labels[i], static_cast<std::int64_t>(samples[i] % 10));
  return images;
}

TEST(ImageBatch, values_are_the_bytes_over_255) {
  const ImageSet set = random_images(3);
  const std::vector<float> images = images_of(set, {2}, {}, 0);
  std::array<std::byte, kImageBytes> bytes;
  set.read(2, bytes);
  for (std::size_t i = 0; i < kImageBytes; ++i) EXPECT_EQ(images[i], static_cast<float>(bytes[i]) / 255.0F);
}

TEST(ImageBatch, what_happens_to_a_sample_does_not_depend_on_its_batch) {
  const ImageSet set = random_images(8);
  const Augmentation both{.flip = true, .shift = true, .seed = 9};
  const std::vector<float> together = images_of(set, {0, 1, 2, 3, 4, 5, 6, 7}, both, 1);
  for (std::uint64_t sample = 0; sample < 8; ++sample) {
    const auto begin = together.begin() + static_cast<std::ptrdiff_t>(sample * kImageValues);
    const std::vector<float> in_batch(begin, begin + kImageValues);
    EXPECT_EQ(images_of(set, {sample}, both, 1), in_batch);
    EXPECT_NE(images_of(set, {sample}, both, 2), in_batch) << "another epoch draws anew";
  }
}

TEST(ImageBatch, about_half_of_the_images_are_mirrored) {
  const ImageSet set = random_images(100);
  int mirrored = 0;
  for (std::uint64_t sample = 0; sample < 100; ++sample) {
    const std::vector<float> plain = images_of(set, {sample}, {}, 0);
    std::vector<float> changed = images_of(set, {sample}, {.flip = true, .seed = 4}, 0);
    if (changed == plain) continue;
    flip_image(changed);
    EXPECT_EQ(changed, plain);
    ++mirrored;
  }
  EXPECT_GT(mirrored, 30);
  EXPECT_LT(mirrored, 70);
}

TEST(ImageBatch, a_shift_by_whole_pixels_moves_them_and_repeats_the_edge) {
  std::vector<float> image(kImageValues);
  for (std::size_t i = 0; i < kImageValues; ++i) image[i] = static_cast<float>(i);
  const std::vector<float> before = image;
  shift_image(image, 2.0F, -3.0F);
  for (std::size_t channel = 0; channel < 3; ++channel) {
    for (std::size_t y = 0; y < kImageSide; ++y) {
      for (std::size_t x = 0; x < kImageSide; ++x) {
        const std::size_t from_y = y < 2 ? 0 : y - 2;
        const std::size_t from_x = std::min<std::size_t>(x + 3, kImageSide - 1);
        const auto at = [&](std::size_t row, std::size_t column) { return (channel * 32 + row) * 32 + column; };
        EXPECT_EQ(image[at(y, x)], before[at(from_y, from_x)]);
      }
    }
  }
}

TEST(ImageBatch, a_shift_by_half_a_pixel_averages_neighbours) {
  std::vector<float> image(kImageValues, 0.0F);
  image[5] = 1.0F;  // Row 0, column 5.
  shift_image(image, 0.0F, 0.5F);
  EXPECT_EQ(image[5], 0.5F);
  EXPECT_EQ(image[6], 0.5F);
  EXPECT_EQ(image[4], 0.0F);
  EXPECT_EQ(image[7], 0.0F);
}

}  // namespace
}  // namespace gyre::data
