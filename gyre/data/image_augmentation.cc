#include "gyre/data/image_augmentation.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "gyre/base/check.h"
#include "gyre/base/random.h"

namespace gyre::data {
namespace {

constexpr float kShiftFraction = 0.1F;

/// Keeps these draws apart from the shuffle's, which may use the same seed.
constexpr std::uint64_t kAugmentationDomain = 0x6175676d656e7400;

void augment(std::span<float> image, const PlanarShape& shape, const Augmentation& augmentation, std::uint64_t epoch,
             std::uint64_t sample) {
  Random random(augmentation.seed ^ kAugmentationDomain, (epoch << 32) + sample);
  const bool mirrored = random.uniform() < 0.5F;
  const float most_rows = kShiftFraction * static_cast<float>(shape.height);
  const float most_columns = kShiftFraction * static_cast<float>(shape.width);
  const float rows = random.uniform(-most_rows, most_rows);
  const float columns = random.uniform(-most_columns, most_columns);
  // Everything is drawn whatever is switched on, so that one switch does not change what the other does.
  if (augmentation.flip && mirrored) flip_image(image, shape);
  if (augmentation.shift) shift_image(image, shape, rows, columns);
}

/// Where each output pixel of one axis comes from: between `near` and `far`, `weight` of the way.
struct Axis {
  std::vector<std::size_t> near;
  std::vector<std::size_t> far;
  float weight;
};

Axis shifted_axis(float shift, std::size_t length) {
  const auto last = static_cast<std::ptrdiff_t>(length) - 1;
  const float start = std::floor(-shift);
  Axis axis{.near = {}, .far = {}, .weight = -shift - start};
  for (std::ptrdiff_t i = 0; i <= last; ++i) {
    const std::ptrdiff_t source = i + static_cast<std::ptrdiff_t>(start);
    axis.near.push_back(static_cast<std::size_t>(std::clamp<std::ptrdiff_t>(source, 0, last)));
    axis.far.push_back(static_cast<std::size_t>(std::clamp<std::ptrdiff_t>(source + 1, 0, last)));
  }
  return axis;
}

}  // namespace

void flip_image(std::span<float> image, const PlanarShape& shape) {
  GYRE_CHECK(image.size() == shape.values());
  for (std::size_t row = 0; row < image.size(); row += shape.width)
    std::ranges::reverse(image.subspan(row, shape.width));
}

void shift_image(std::span<float> image, const PlanarShape& shape, float rows, float columns) {
  GYRE_CHECK(image.size() == shape.values());
  const Axis vertical = shifted_axis(rows, shape.height);
  const Axis horizontal = shifted_axis(columns, shape.width);
  const std::vector<float> source(image.begin(), image.end());
  for (std::size_t channel = 0; channel < shape.channels; ++channel) {
    const std::size_t plane = channel * shape.height * shape.width;
    for (std::size_t y = 0; y < shape.height; ++y) {
      const float* above = source.data() + plane + vertical.near[y] * shape.width;
      const float* below = source.data() + plane + vertical.far[y] * shape.width;
      float* out = image.data() + plane + y * shape.width;
      for (std::size_t x = 0; x < shape.width; ++x) {
        const std::size_t left = horizontal.near[x];
        const std::size_t right = horizontal.far[x];
        const float upper = above[left] + (above[right] - above[left]) * horizontal.weight;
        const float lower = below[left] + (below[right] - below[left]) * horizontal.weight;
        out[x] = upper + (lower - upper) * vertical.weight;
      }
    }
  }
}

void augment_images(std::span<const std::byte> pixels, const PlanarShape& shape, std::span<const std::uint64_t> samples,
                    const Augmentation& augmentation, std::uint64_t epoch, std::span<float> images) {
  GYRE_CHECK(images.size() == samples.size() * shape.values());
  GYRE_CHECK(pixels.size() == images.size());
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const std::size_t first = i * shape.values();
    for (std::size_t k = first; k < first + shape.values(); ++k) images[k] = static_cast<float>(pixels[k]) / 255.0F;
    if (augmentation.flip || augmentation.shift) {
      augment(images.subspan(first, shape.values()), shape, augmentation, epoch, samples[i]);
    }
  }
}

}  // namespace gyre::data
