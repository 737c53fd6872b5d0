#include "gyre/data/synthetic_images.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <span>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/base/random.h"
#include "gyre/data/formats/jpeg.h"

namespace gyre::data {
namespace {

constexpr std::uint64_t kDomain = 0x70696374757265;  // Apart from other streams of the same seed.
constexpr std::uint32_t kLeastDrawnSide = 16;
constexpr std::uint32_t kMostDrawnSide = 4096;
constexpr int kQuality = 92;
constexpr float kTurn = 2 * std::numbers::pi_v<float>;

using Color = std::array<float, 3>;

/// Hue from 0 to 1; saturation and brightness likewise. The result from 0 to 255.
Color from_hue(float hue, float saturation, float brightness) {
  Color color{};
  for (std::size_t c = 0; c < color.size(); ++c) {
    const float place = std::fmod(hue * 6 + (c == 0 ? 5.0F : c == 1 ? 3.0F : 1.0F), 6.0F);
    const float part = std::clamp(std::min(place, 4 - place), 0.0F, 1.0F);
    color[c] = 255 * brightness * (1 - saturation * part);
  }
  return color;
}

enum class Shape : std::uint32_t { kDisc, kSquare, kTriangle, kRing, kCross };
constexpr std::uint32_t kShapes = 5;

/// What the objects of a class are.
struct Motif {
  Shape shape;
  float hue;
  bool striped;
  float background_hue;
  float background_saturation;
  float stripes;  ///< Across an object.
};

Motif motif_of(std::uint32_t label) {
  return {.shape = static_cast<Shape>(label % kShapes),
          .hue = static_cast<float>(label * 3 % 10) / 10,
          .striped = label / kShapes % 2 == 1,
          .background_hue = static_cast<float>(label / 10 % 10) / 10,
          .background_saturation = label < 10 ? 0.1F : 0.35F,
          .stripes = 2.0F + static_cast<float>(label / 100 % 10) / 2};
}

/// `u` and `v` from -1 to 1 within the object's square.
bool is_inside(Shape shape, float u, float v) {
  switch (shape) {
    case Shape::kDisc: return u * u + v * v < 0.8F;
    case Shape::kSquare: return std::max(std::abs(u), std::abs(v)) < 0.75F;
    case Shape::kTriangle: return v > -0.7F && v < 0.9F - 1.8F * std::abs(u);
    case Shape::kRing: return u * u + v * v < 0.95F && u * u + v * v > 0.35F;
    case Shape::kCross: return std::min(std::abs(u), std::abs(v)) < 0.28F && std::max(std::abs(u), std::abs(v)) < 0.95F;
  }
  return false;
}

class Canvas {
 public:
  Canvas(std::uint32_t width, std::uint32_t height)
      : width_(width), height_(height), values_(std::size_t{width} * height * kPixelBytes) {}

  void draw_clouds(const Motif& motif, Random& random);
  void draw_object(const Motif& motif, Random& random);
  void add_grain(float amplitude, std::uint64_t seed, std::uint64_t stream);
  Bytes encode() const;

 private:
  float* at(std::uint32_t x, std::uint32_t y) { return values_.data() + (std::size_t{y} * width_ + x) * kPixelBytes; }

  std::uint32_t width_;
  std::uint32_t height_;
  std::vector<float> values_;
};

/// Colours at the crossings of a lattice, and between them what lies between these.
void Canvas::draw_clouds(const Motif& motif, Random& random) {
  constexpr std::uint32_t kCells = 6;
  std::array<Color, (kCells + 1) * (kCells + 1)> lattice;
  for (Color& color : lattice) {
    color = from_hue(motif.background_hue + random.uniform(0.95F, 1.05F), motif.background_saturation,
                     random.uniform(0.25F, 0.85F));
  }
  for (std::uint32_t y = 0; y < height_; ++y) {
    const float v = static_cast<float>(y) * kCells / static_cast<float>(height_);
    const auto row = static_cast<std::uint32_t>(v);
    for (std::uint32_t x = 0; x < width_; ++x) {
      const float u = static_cast<float>(x) * kCells / static_cast<float>(width_);
      const auto column = static_cast<std::uint32_t>(u);
      const Color* const corner = lattice.data() + row * (kCells + 1) + column;
      const float right = u - static_cast<float>(column);
      const float low = v - static_cast<float>(row);
      for (std::size_t c = 0; c < kPixelBytes; ++c) {
        const float upper = corner[0][c] + right * (corner[1][c] - corner[0][c]);
        const float lower = corner[kCells + 1][c] + right * (corner[kCells + 2][c] - corner[kCells + 1][c]);
        at(x, y)[c] = upper + low * (lower - upper);
      }
    }
  }
}

void Canvas::draw_object(const Motif& motif, Random& random) {
  const auto side = static_cast<float>(std::min(width_, height_));
  const float radius = side * random.uniform(0.06F, 0.15F);
  const float x0 = random.uniform(0, static_cast<float>(width_));
  const float y0 = random.uniform(0, static_cast<float>(height_));
  const float angle = random.uniform(0, kTurn);
  const Color color =
      from_hue(motif.hue + random.uniform(0.97F, 1.03F), random.uniform(0.65F, 0.9F), random.uniform(0.6F, 0.95F));
  const float cosine = std::cos(angle) / radius;
  const float sine = std::sin(angle) / radius;
  const auto clipped = [](float place, std::uint32_t most) {
    return static_cast<std::uint32_t>(std::clamp(place, 0.0F, static_cast<float>(most)));
  };
  const float reach = radius * 1.42F;
  for (std::uint32_t y = clipped(y0 - reach, height_); y < clipped(y0 + reach, height_); ++y) {
    for (std::uint32_t x = clipped(x0 - reach, width_); x < clipped(x0 + reach, width_); ++x) {
      const float across = static_cast<float>(x) - x0;
      const float down = static_cast<float>(y) - y0;
      const float u = across * cosine + down * sine;
      const float v = down * cosine - across * sine;
      if (!is_inside(motif.shape, u, v)) continue;
      const bool dark = motif.striped && std::sin(u * motif.stripes * kTurn / 2) > 0;
      for (std::size_t c = 0; c < kPixelBytes; ++c) at(x, y)[c] = dark ? color[c] * 0.25F : color[c];
    }
  }
}

/// A byte of noise for each value: 16 from each block of the generator.
void Canvas::add_grain(float amplitude, std::uint64_t seed, std::uint64_t stream) {
  const float scale = amplitude / 128;
  constexpr std::size_t kPerBlock = 16;
  for (std::size_t i = 0; i < values_.size(); i += kPerBlock) {
    const auto block = philox4x32({static_cast<std::uint32_t>(i / kPerBlock), 1, static_cast<std::uint32_t>(stream),
                                   static_cast<std::uint32_t>(stream >> 32)},
                                  {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
    for (std::size_t j = 0; j < std::min(kPerBlock, values_.size() - i); ++j) {
      const std::uint32_t byte = block[j / 4] >> (j % 4 * 8) & 0xff;
      values_[i + j] += scale * (static_cast<float>(byte) - 127.5F);
    }
  }
}

Bytes Canvas::encode() const {
  std::vector<std::uint8_t> bytes(values_.size());
  std::ranges::transform(values_, bytes.begin(),
                         [](float value) { return static_cast<std::uint8_t>(std::clamp(value + 0.5F, 0.0F, 255.0F)); });
  return encode_jpeg({bytes.data(), std::size_t{width_} * kPixelBytes, width_, height_}, kQuality);
}

/// Width and height for a long side of 1. Most of ImageNet's images are 500 x 375; some are larger.
std::pair<float, float> draw_size(Random& random) {
  const float which = random.uniform();
  const float scale = random.uniform() < 0.05F ? random.uniform(1.2F, 2.4F) : random.uniform(0.9F, 1.0F);
  if (which < 0.55F) return {scale, 0.75F * scale};
  if (which < 0.75F) return {0.75F * scale, scale};
  if (which < 0.87F) return {scale, 0.667F * scale};
  if (which < 0.92F) return {0.667F * scale, scale};
  return {scale, scale};
}

}  // namespace

SyntheticImage synthetic_image(const SyntheticImageOptions& options, std::uint32_t stream, std::uint64_t index) {
  if (options.classes < 1 || options.classes > kMostSyntheticClasses) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("images of {} classes cannot be made; 1 to {} can",
                                                         options.classes, kMostSyntheticClasses));
  }
  if (options.long_side < kLeastDrawnSide || options.long_side > kMostDrawnSide) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("images of {} pixels cannot be made; {} to {} can",
                                                         options.long_side, kLeastDrawnSide, kMostDrawnSide));
  }
  const std::uint64_t seed = Random(options.seed ^ kDomain, stream).next_u64();
  Random random(seed, index);
  const auto [wide, high] = draw_size(random);
  const auto pixels = [&](float side) {
    return std::max(kLeastDrawnSide / 2,
                    static_cast<std::uint32_t>(std::lround(side * static_cast<float>(options.long_side))));
  };
  SyntheticImage image;
  image.width = pixels(wide);
  image.height = pixels(high);
  image.label = static_cast<std::uint32_t>(index % options.classes);
  const Motif motif = motif_of(image.label);
  Canvas canvas(image.width, image.height);
  canvas.draw_clouds(motif, random);
  const std::uint64_t objects = 14 + random.below(14);
  for (std::uint64_t i = 0; i < objects; ++i) canvas.draw_object(motif, random);
  const float amplitude = random.uniform(4, 40);
  canvas.add_grain(amplitude, seed, index);
  image.jpeg = canvas.encode();
  return image;
}

}  // namespace gyre::data
