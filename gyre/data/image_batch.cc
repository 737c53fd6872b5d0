#include "gyre/data/image_batch.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "gyre/base/check.h"

namespace gyre::data {
namespace {

constexpr float kShiftFraction = 0.1F;

/// Keeps these draws apart from the shuffle's, which may use the same seed.
constexpr std::uint64_t kAugmentationDomain = 0x6175676d656e7400;

void augment(std::span<float> image, const Augmentation& augmentation, std::uint64_t epoch, std::uint64_t sample) {
  Random random(augmentation.seed ^ kAugmentationDomain, (epoch << 32) + sample);
  const bool mirrored = random.uniform() < 0.5F;
  constexpr float kMostPixels = kShiftFraction * static_cast<float>(kImageSide);
  const float rows = random.uniform(-kMostPixels, kMostPixels);
  const float columns = random.uniform(-kMostPixels, kMostPixels);
  // Everything is drawn whatever is switched on, so that one switch does not change what the other does.
  if (augmentation.flip && mirrored) flip_image(image);
  if (augmentation.shift) shift_image(image, rows, columns);
}

/// Where each output pixel of one axis comes from: between `near` and `far`, `weight` of the way.
struct Axis {
  std::array<std::size_t, kImageSide> near;
  std::array<std::size_t, kImageSide> far;
  float weight;
};

Axis shifted_axis(float shift) {
  constexpr int kLast = static_cast<int>(kImageSide) - 1;
  const float start = std::floor(-shift);
  Axis axis{};
  axis.weight = -shift - start;
  for (int i = 0; i <= kLast; ++i) {
    const int source = i + static_cast<int>(start);
    axis.near[static_cast<std::size_t>(i)] = static_cast<std::size_t>(std::clamp(source, 0, kLast));
    axis.far[static_cast<std::size_t>(i)] = static_cast<std::size_t>(std::clamp(source + 1, 0, kLast));
  }
  return axis;
}

}  // namespace

void flip_image(std::span<float> image) {
  GYRE_CHECK(image.size() == kImageValues);
  for (std::size_t row = 0; row < kImageValues; row += kImageSide) {
    std::reverse(image.begin() + static_cast<std::ptrdiff_t>(row),
                 image.begin() + static_cast<std::ptrdiff_t>(row + kImageSide));
  }
}

void shift_image(std::span<float> image, float rows, float columns) {
  GYRE_CHECK(image.size() == kImageValues);
  const Axis vertical = shifted_axis(rows);
  const Axis horizontal = shifted_axis(columns);
  const std::vector<float> source(image.begin(), image.end());
  for (std::size_t channel = 0; channel < kImageChannels; ++channel) {
    const std::size_t plane = channel * kImageSide * kImageSide;
    for (std::size_t y = 0; y < kImageSide; ++y) {
      const float* above = source.data() + plane + vertical.near[y] * kImageSide;
      const float* below = source.data() + plane + vertical.far[y] * kImageSide;
      float* out = image.data() + plane + y * kImageSide;
      for (std::size_t x = 0; x < kImageSide; ++x) {
        const std::size_t left = horizontal.near[x];
        const std::size_t right = horizontal.far[x];
        const float upper = above[left] + (above[right] - above[left]) * horizontal.weight;
        const float lower = below[left] + (below[right] - below[left]) * horizontal.weight;
        out[x] = upper + (lower - upper) * vertical.weight;
      }
    }
  }
}

void read_images(const ImageSet& set, std::span<const std::uint64_t> samples, const Augmentation& augmentation,
                 std::uint64_t epoch, std::span<float> images, std::span<std::int64_t> labels) {
  GYRE_CHECK(images.size() == samples.size() * kImageValues);
  GYRE_CHECK(labels.size() == samples.size());
  std::array<std::byte, kImageBytes> pixels;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    labels[i] = set.read(samples[i], pixels);
    const std::span<float> image = images.subspan(i * kImageValues, kImageValues);
    for (std::size_t k = 0; k < kImageValues; ++k) image[k] = static_cast<float>(pixels[k]) / 255.0F;
    if (augmentation.flip || augmentation.shift) augment(image, augmentation, epoch, samples[i]);
  }
}

}  // namespace gyre::data
