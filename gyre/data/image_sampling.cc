#include "gyre/data/image_sampling.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "gyre/base/error.h"

namespace gyre::data {
namespace {

constexpr std::uint64_t kImageDomain = 0x696d616765730000;  // Apart from other streams of the same seed.
constexpr int kAttempts = 10;
constexpr std::uint32_t kMostSampledSide = 1 << 14;

double uniform(Random& random, double low, double high) { return low + (high - low) * double{random.uniform()}; }

PixelRegion middle_of(ImageSize size, double width, double height) {
  PixelRegion region;
  region.width = static_cast<std::uint32_t>(std::clamp(std::round(width), 1.0, double(size.width)));
  region.height = static_cast<std::uint32_t>(std::clamp(std::round(height), 1.0, double(size.height)));
  region.left = (size.width - region.width) / 2;
  region.top = (size.height - region.height) / 2;
  return region;
}

PixelRegion random_area(const ImageOptions& options, ImageSize size, Random& random) {
  const double width = size.width;
  const double height = size.height;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const double area = width * height * uniform(random, options.least_area, options.most_area);
    const double aspect = std::exp(uniform(random, std::log(options.least_aspect), std::log(options.most_aspect)));
    const double wide = std::round(std::sqrt(area * aspect));
    const double high = std::round(std::sqrt(area / aspect));
    if (wide < 1 || high < 1 || wide > width || high > height) continue;
    PixelRegion region{0, 0, static_cast<std::uint32_t>(wide), static_cast<std::uint32_t>(high)};
    region.left = static_cast<std::uint32_t>(random.below(size.width - region.width + 1));
    region.top = static_cast<std::uint32_t>(random.below(size.height - region.height + 1));
    return region;
  }
  if (width / height < options.least_aspect) return middle_of(size, width, width / options.least_aspect);
  if (width / height > options.most_aspect) return middle_of(size, height * options.most_aspect, height);
  return {0, 0, size.width, size.height};
}

/// One side of "resize, then cut out the middle", in the image's own pixels.
struct Span {
  double first = 0;
  double length = 0;
  std::uint32_t region_first = 0;
  std::uint32_t region_length = 0;
};

Span middle_span(std::uint32_t side, double resized, std::uint32_t wanted) {
  Span span;
  const double scale = double(side) / resized;
  span.first = std::nearbyint((resized - wanted) / 2) * scale;
  span.length = wanted * scale;
  const double reach = std::max(scale, 1.0) + 1;  // Of the filter.
  span.region_first = static_cast<std::uint32_t>(std::max(0.0, std::floor(span.first - reach)));
  const double last = std::min(double(side), std::ceil(span.first + span.length + reach));
  span.region_length = static_cast<std::uint32_t>(last) - span.region_first;
  return span;
}

Sampling middle(const ImageOptions& options, ImageSize size) {
  const double shorter = std::min(size.width, size.height);
  if (options.resize == 0 && (size.width < options.width || size.height < options.height)) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("an image of {} x {} pixels is smaller than the {} x {} that are cut out of it; give the "
                    "field resize={} to enlarge the shorter side first",
                    size.width, size.height, options.width, options.height, std::max(options.width, options.height)));
  }
  // The longer side is rounded down, as by torchvision.
  const auto resized = [&](std::uint32_t side) {
    return options.resize == 0 ? double(side) : std::floor(double(options.resize) * side / shorter);
  };
  const Span across = middle_span(size.width, resized(size.width), options.width);
  const Span down = middle_span(size.height, resized(size.height), options.height);
  return {.left = across.first,
          .top = down.first,
          .width = across.length,
          .height = down.length,
          .region = {across.region_first, down.region_first, across.region_length, down.region_length}};
}

}  // namespace

void check_image_options(const ImageOptions& options) {
  const auto refuse = [](const std::string& what) { throw Error(ErrorCode::kInvalidArgument, what); };
  if (options.width < 1 || options.height < 1 || options.width > kMostSampledSide ||
      options.height > kMostSampledSide) {
    refuse(fmt::format("images of {} x {} pixels cannot be made; sides go from 1 to {}", options.width, options.height,
                       kMostSampledSide));
  }
  const bool resizes = !options.augment && options.resize > 0;
  if (resizes && (options.resize < std::max(options.width, options.height) || options.resize > kMostSampledSide)) {
    refuse(
        fmt::format("images of {} x {} cannot be cut out where the shorter side is resized to {}; it must be at "
                    "least as long, and at most {}",
                    options.width, options.height, options.resize, kMostSampledSide));
  }
  // Written so that what is not a number is refused.
  if (!(options.least_area > 0 && options.least_area <= options.most_area && options.most_area <= 1)) {
    refuse(fmt::format("an area from {} to {} of the image is none; 0 < least <= most <= 1 is needed",
                       options.least_area, options.most_area));
  }
  if (!(options.least_aspect >= 0.01 && options.least_aspect <= options.most_aspect && options.most_aspect <= 100)) {
    refuse(fmt::format("an aspect (width by height) from {} to {} is none; 0.01 <= least <= most <= 100 is needed",
                       options.least_aspect, options.most_aspect));
  }
  if (!(options.mirror_probability >= 0 && options.mirror_probability <= 1)) {
    refuse(fmt::format("images cannot be mirrored with probability {}", options.mirror_probability));
  }
  for (std::size_t c = 0; c < options.mean.size(); ++c) {
    if (!std::isfinite(options.mean[c]) || !std::isfinite(options.deviation[c]) || options.deviation[c] <= 0) {
      refuse(fmt::format("values cannot be normalised by the mean {} and the standard deviation {}", options.mean[c],
                         options.deviation[c]));
    }
  }
}

Sampling choose_sampling(const ImageOptions& options, ImageSize size, Random& random) {
  if (!options.augment) return middle(options, size);
  // The flip is drawn first, so that it does not depend on how many areas were tried.
  const bool mirrored = double{random.uniform()} < options.mirror_probability;
  const PixelRegion area = random_area(options, size, random);
  return {.left = double(area.left),
          .top = double(area.top),
          .width = double(area.width),
          .height = double(area.height),
          .region = area,
          .mirrored = mirrored};
}

Random random_of_sample(std::uint64_t seed, std::uint64_t epoch, std::uint64_t sample) {
  // Random has one number for the stream; an epoch gets a key of its own, so that neither is cut off.
  const auto key = philox4x32({static_cast<std::uint32_t>(epoch), static_cast<std::uint32_t>(epoch >> 32), 0, 0},
                              {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
  return Random((std::uint64_t{key[0]} | std::uint64_t{key[1]} << 32) ^ kImageDomain, sample);
}

}  // namespace gyre::data
