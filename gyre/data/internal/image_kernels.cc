#include "gyre/data/internal/image_kernels.h"

#include <cmath>
#include <cstdint>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "gyre/data/internal/image_kernels.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace gyre::data::internal::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <typename Tag>
HWY_INLINE hn::Vec<Tag> load_bytes(Tag tag, const std::uint8_t* from) {
  const hn::Rebind<std::uint8_t, Tag> bytes;
  const hn::Rebind<std::int32_t, Tag> integers;
  return hn::ConvertTo(tag, hn::PromoteTo(integers, hn::LoadU(bytes, from)));
}

void blend_rows_here(const std::uint8_t* const* rows, std::size_t taps, const float* weights, std::size_t count,
                     float* into) {
  const hn::ScalableTag<float> tag;
  const std::size_t lanes = hn::Lanes(tag);
  for (std::size_t i = 0; i < count; i += 2 * lanes) {  // Two sums at a time: one waits for its last product.
    auto low = hn::Zero(tag);
    auto high = hn::Zero(tag);
    for (std::size_t k = 0; k < taps; ++k) {
      const auto weight = hn::Set(tag, weights[k]);
      low = hn::MulAdd(load_bytes(tag, rows[k] + i), weight, low);
      high = hn::MulAdd(load_bytes(tag, rows[k] + i + lanes), weight, high);
    }
    hn::StoreU(low, tag, into + i);
    hn::StoreU(high, tag, into + i + lanes);
  }
}

void blend_pixels_here(const float* row, const std::uint32_t* first, const float* weights, std::size_t taps,
                       std::size_t count, bool mirrored, float* into) {
  const hn::CappedTag<float, kLanesPerPixel> tag;
  const std::size_t lanes = hn::Lanes(tag);
  for (std::size_t x = 0; x < count; ++x) {
    const float* const from = row + 3 * std::size_t{first[x]};
    float* const to = into + kLanesPerPixel * (mirrored ? count - 1 - x : x);
    for (std::size_t lane = 0; lane < kLanesPerPixel; lane += lanes) {
      auto sum = hn::Zero(tag);
      for (std::size_t k = 0; k < taps; ++k) {
        sum = hn::MulAdd(hn::LoadU(tag, from + 3 * k + lane), hn::Set(tag, weights[x * taps + k]), sum);
      }
      hn::StoreU(sum, tag, to + lane);
    }
  }
}

void split_planes_here(const float* pixels, std::size_t count, const float* scale, const float* shift,
                       float* const* planes) {
  const hn::ScalableTag<float> tag;
  const std::size_t lanes = hn::Lanes(tag);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    auto red = hn::Zero(tag);
    auto green = hn::Zero(tag);
    auto blue = hn::Zero(tag);
    auto unused = hn::Zero(tag);
    hn::LoadInterleaved4(tag, pixels + i * kLanesPerPixel, red, green, blue, unused);
    hn::StoreU(hn::MulAdd(red, hn::Set(tag, scale[0]), hn::Set(tag, shift[0])), tag, planes[0] + i);
    hn::StoreU(hn::MulAdd(green, hn::Set(tag, scale[1]), hn::Set(tag, shift[1])), tag, planes[1] + i);
    hn::StoreU(hn::MulAdd(blue, hn::Set(tag, scale[2]), hn::Set(tag, shift[2])), tag, planes[2] + i);
  }
  for (; i < count; ++i) {
    for (std::size_t c = 0; c < 3; ++c) planes[c][i] = pixels[i * kLanesPerPixel + c] * scale[c] + shift[c];
  }
}

void to_bfloat16_here(const float* values, std::size_t count, std::uint16_t* into) {
  const hn::ScalableTag<float> tag;
  const hn::RebindToUnsigned<decltype(tag)> bits_tag;
  const hn::Rebind<std::uint16_t, decltype(tag)> half_tag;
  const std::size_t lanes = hn::Lanes(tag);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto bits = hn::BitCast(bits_tag, hn::LoadU(tag, values + i));
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(bits_tag, 1));
    const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(bits_tag, 0x7fff)));
    hn::StoreU(hn::TruncateTo(half_tag, hn::ShiftRight<16>(rounded)), half_tag, into + i);
  }
  for (; i < count; ++i) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, values + i, sizeof(bits));
    into[i] = static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  }
}

void to_uint8_here(const float* values, std::size_t count, std::uint8_t* into) {
  const hn::ScalableTag<float> tag;
  const hn::Rebind<std::uint8_t, decltype(tag)> bytes;
  const std::size_t lanes = hn::Lanes(tag);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    hn::StoreU(hn::DemoteTo(bytes, hn::NearestInt(hn::LoadU(tag, values + i))), bytes, into + i);
  }
  for (; i < count; ++i) {
    const float value = values[i] < 0 ? 0 : values[i] > 255 ? 255 : values[i];
    into[i] = static_cast<std::uint8_t>(std::nearbyint(value));
  }
}

}  // namespace gyre::data::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gyre::data::internal {
namespace {

HWY_EXPORT(blend_rows_here);
HWY_EXPORT(blend_pixels_here);
HWY_EXPORT(split_planes_here);
HWY_EXPORT(to_bfloat16_here);
HWY_EXPORT(to_uint8_here);

}  // namespace

void blend_rows(std::span<const std::uint8_t* const> rows, const float* weights, std::size_t count, float* into) {
  HWY_DYNAMIC_DISPATCH(blend_rows_here)(rows.data(), rows.size(), weights, count, into);
}

void blend_pixels(const float* row, const Taps& taps, bool mirrored, float* into) {
  HWY_DYNAMIC_DISPATCH(blend_pixels_here)
  (row, taps.first.data(), taps.weights.data(), taps.taps, taps.first.size(), mirrored, into);
}

void split_planes(const float* pixels, std::size_t count, std::span<const float, 3> scale,
                  std::span<const float, 3> shift, std::span<float* const, 3> planes) {
  HWY_DYNAMIC_DISPATCH(split_planes_here)(pixels, count, scale.data(), shift.data(), planes.data());
}

void to_bfloat16(const float* values, std::size_t count, std::uint16_t* into) {
  HWY_DYNAMIC_DISPATCH(to_bfloat16_here)(values, count, into);
}

void to_uint8(const float* values, std::size_t count, std::uint8_t* into) {
  HWY_DYNAMIC_DISPATCH(to_uint8_here)(values, count, into);
}

}  // namespace gyre::data::internal
#endif
