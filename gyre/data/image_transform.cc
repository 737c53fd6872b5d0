#include "gyre/data/image_transform.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "gyre/base/check.h"
#include "gyre/data/internal/image_kernels.h"
#include "gyre/data/narrow_floats.h"

namespace gyre::data {
namespace {

using internal::kKernelSlack;
using internal::kLanesPerPixel;

constexpr float kMostValue = 255;

template <typename T>
T* elements(std::span<std::byte> bytes) {
  return reinterpret_cast<T*>(bytes.data());
}

void narrow(ElementType type, const float* values, std::size_t count, std::uint16_t* into) {
  if (type == ElementType::kBfloat16) return internal::to_bfloat16(values, count, into);
  std::transform(values, values + count, into, to_float16);
}

}  // namespace

/// Pillow's precompute_coeffs with its bilinear filter, a triangle that reaches one pixel of the smaller scale far.
void ImageTransform::plan(Axis& axis, double begin, double length, std::uint32_t available, std::uint32_t wanted) {
  const double scale = length / wanted;
  const double reach = std::max(scale, 1.0);
  const double inverse_reach = 1 / reach;
  // Not floor(), which is a call; what is cut off is positive.
  const auto low_of = [&](double centre) {
    return std::min(static_cast<std::size_t>(std::max(centre - reach + 0.5, 0.0)), std::size_t{available} - 1);
  };
  const auto high_of = [&](double centre, std::size_t low) {
    return std::clamp(static_cast<std::size_t>(std::max(centre + reach + 0.5, 0.0)), low + 1, std::size_t{available});
  };
  axis.taps = 1;
  for (std::uint32_t i = 0; i < wanted; ++i) {
    const double centre = begin + (i + 0.5) * scale;
    const std::size_t low = low_of(centre);
    axis.taps = std::max(axis.taps, high_of(centre, low) - low);
  }
  axis.first.resize(wanted);
  axis.weights.assign(wanted * axis.taps, 0);
  for (std::uint32_t i = 0; i < wanted; ++i) {
    const double centre = begin + (i + 0.5) * scale;
    const std::size_t low = low_of(centre);
    const std::size_t count = high_of(centre, low) - low;
    // Those that are not used must be there as well: they are read, and weigh nothing.
    const std::size_t first = std::min(low, available - axis.taps);
    float* const weights = axis.weights.data() + i * axis.taps + (low - first);
    double sum = 0;
    for (std::size_t k = 0; k < count; ++k) {
      const double weight = std::max(0.0, 1 - std::abs(double(low + k) - centre + 0.5) * inverse_reach);
      weights[k] = static_cast<float>(weight);
      sum += weight;
    }
    if (sum > 0) {
      const double factor = 1 / sum;
      for (std::size_t k = 0; k < count; ++k) weights[k] = static_cast<float>(double{weights[k]} * factor);
    } else {
      weights[0] = 1;
    }
    axis.first[i] = static_cast<std::uint32_t>(first);
  }
}

void ImageTransform::plan_nearest(Axis& axis, double begin, double length, std::uint32_t available,
                                  std::uint32_t wanted) {
  const double scale = length / wanted;
  axis.taps = 1;
  axis.first.resize(wanted);
  axis.weights.assign(wanted, 1);
  for (std::uint32_t i = 0; i < wanted; ++i) {
    axis.first[i] = std::min(static_cast<std::uint32_t>(std::max(begin + (i + 0.5) * scale, 0.0)), available - 1);
  }
}

void ImageTransform::apply(const Pixels& pixels, const Sampling& sampling, const ImageOptions& options,
                           ElementType type, std::span<std::byte> into) {
  GYRE_CHECK(into.size() == std::size_t{options.width} * options.height * kPixelBytes * size_bytes(type));
  const auto plan_axis = options.resample == Resample::kNearest ? plan_nearest : plan;
  plan_axis(across_, sampling.left, sampling.width, pixels.width, options.width);
  plan_axis(down_, sampling.top, sampling.height, pixels.height, options.height);
  line_.resize(std::size_t{pixels.width} * kPixelBytes + kKernelSlack);
  pixels_.resize(std::size_t{options.width} * kLanesPerPixel + kKernelSlack);
  planes_.resize(std::size_t{options.width} * kPixelBytes + kKernelSlack);
  internal::spread_weights(across_.weights, across_.taps, spread_weights_);
  const internal::Taps taps{across_.first, spread_weights_, across_.taps};
  for (std::size_t y = 0; y < options.height; ++y) {
    const std::span weights = std::span(down_.weights).subspan(y * down_.taps, down_.taps);
    const auto weighs = [](float weight) { return weight > 0; };
    const auto begin = std::ranges::find_if(weights, weighs);
    const auto end = std::find_if_not(begin, weights.end(), weighs);
    rows_.clear();
    for (auto weight = begin; weight != end; ++weight) {
      rows_.push_back(pixels.row(down_.first[y] + static_cast<std::size_t>(weight - weights.begin())));
    }
    internal::blend_rows(rows_, &*begin, std::size_t{pixels.width} * kPixelBytes, line_.data());
    internal::blend_pixels(line_.data(), taps, sampling.mirrored, pixels_.data());
    store_row(options, type, y, into);
  }
  internal::finish_stores();
}

void ImageTransform::store_row(const ImageOptions& options, ElementType type, std::size_t y,
                               std::span<std::byte> into) {
  const std::size_t width = options.width;
  const std::size_t plane = width * options.height;
  std::array<float, 3> scale{1, 1, 1};
  std::array<float, 3> shift{};
  if (type != ElementType::kUint8) {
    for (std::size_t c = 0; c < scale.size(); ++c) {
      scale[c] = 1 / (kMostValue * options.deviation[c]);
      shift[c] = -options.mean[c] / options.deviation[c];
    }
  }
  std::array<float*, 3> planes{};
  const bool in_place = options.channels_first && type == ElementType::kFloat32;
  for (std::size_t c = 0; c < planes.size(); ++c) {
    planes[c] = in_place ? elements<float>(into) + c * plane + y * width : planes_.data() + c * width;
  }
  internal::split_planes(pixels_.data(), width, scale, shift, in_place, planes);
  if (in_place) return;
  if (options.channels_first) {
    for (std::size_t c = 0; c < planes.size(); ++c) {
      const std::size_t at = c * plane + y * width;
      if (type == ElementType::kUint8) {
        internal::to_uint8(planes[c], width, elements<std::uint8_t>(into) + at);
      } else {
        narrow(type, planes[c], width, elements<std::uint16_t>(into) + at);
      }
    }
    return;
  }
  // pixels_ is free again: the row with its channels together.
  for (std::size_t x = 0; x < width; ++x) {
    for (std::size_t c = 0; c < planes.size(); ++c) pixels_[x * kPixelBytes + c] = planes[c][x];
  }
  const std::size_t at = y * width * kPixelBytes;
  switch (type) {
    case ElementType::kUint8:
      return internal::to_uint8(pixels_.data(), width * kPixelBytes, elements<std::uint8_t>(into) + at);
    case ElementType::kBfloat16:
    case ElementType::kFloat16:
      return narrow(type, pixels_.data(), width * kPixelBytes, elements<std::uint16_t>(into) + at);
    default: std::memcpy(elements<float>(into) + at, pixels_.data(), width * kPixelBytes * sizeof(float));
  }
}

}  // namespace gyre::data
