#include "gyre/data/internal/image_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "gyre/data/internal/image_kernels.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/cache_control.h>
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

constexpr std::size_t kPairLanes = 2 * kLanesPerPixel;

// The weights of pixel `x` for tap 0; those for the next tap are kPairLanes further.
HWY_INLINE const float* weights_of(const float* weights, std::size_t taps, std::size_t x) {
  return weights + x / 2 * taps * kPairLanes + x % 2 * kLanesPerPixel;
}

#if HWY_MAX_BYTES >= 32
template <std::size_t kTaps>
HWY_INLINE hn::Vec<hn::FixedTag<float, kPairLanes>> blend_pair(const float* first, const float* second,
                                                               const float* weights) {
  const hn::FixedTag<float, kPairLanes> pair;
  const hn::FixedTag<float, kLanesPerPixel> one;
  const auto pixels = hn::Combine(pair, hn::LoadU(one, second), hn::LoadU(one, first));
  if constexpr (kTaps == 1) {
    return hn::Mul(pixels, hn::LoadU(pair, weights));
  } else {
    return hn::MulAdd(pixels, hn::LoadU(pair, weights),
                      blend_pair<kTaps - 1>(first + 3, second + 3, weights + kPairLanes));
  }
}

// Two pixels at a time, and no loop over the taps, which would cost as much as they do. Returns how many are done.
template <std::size_t kTaps>
std::size_t blend_pairs(const float* row, const std::uint32_t* first, const float* weights, std::size_t count,
                        bool mirrored, float* into) {
  const hn::FixedTag<float, kPairLanes> pair;
  const hn::FixedTag<float, kLanesPerPixel> one;
  std::size_t x = 0;
  for (; x + 2 <= count; x += 2, weights += kTaps * kPairLanes) {
    const auto sums = blend_pair<kTaps>(row + 3 * std::size_t{first[x]}, row + 3 * std::size_t{first[x + 1]}, weights);
    if (mirrored) {
      float* const to = into + kLanesPerPixel * (count - 2 - x);
      hn::StoreU(hn::UpperHalf(one, sums), one, to);
      hn::StoreU(hn::LowerHalf(one, sums), one, to + kLanesPerPixel);
    } else {
      hn::StoreU(sums, pair, into + kLanesPerPixel * x);
    }
  }
  return x;
}
#endif

void blend_pixels_here(const float* row, const std::uint32_t* first, const float* weights, std::size_t taps,
                       std::size_t count, bool mirrored, float* into) {
  std::size_t x = 0;
#if HWY_MAX_BYTES >= 32
  switch (taps) {
    case 1: x = blend_pairs<1>(row, first, weights, count, mirrored, into); break;
    case 2: x = blend_pairs<2>(row, first, weights, count, mirrored, into); break;
    case 3: x = blend_pairs<3>(row, first, weights, count, mirrored, into); break;
    case 4: x = blend_pairs<4>(row, first, weights, count, mirrored, into); break;
    case 5: x = blend_pairs<5>(row, first, weights, count, mirrored, into); break;
    case 6: x = blend_pairs<6>(row, first, weights, count, mirrored, into); break;
    default: break;
  }
#endif
  const hn::CappedTag<float, kLanesPerPixel> tag;
  const std::size_t lanes = hn::Lanes(tag);
  for (; x < count; ++x) {
    const float* const from = row + 3 * std::size_t{first[x]};
    const float* const weight = weights_of(weights, taps, x);
    float* const to = into + kLanesPerPixel * (mirrored ? count - 1 - x : x);
    for (std::size_t lane = 0; lane < kLanesPerPixel; lane += lanes) {
      auto sum = hn::Zero(tag);
      for (std::size_t k = 0; k < taps; ++k) {
        sum = hn::MulAdd(hn::LoadU(tag, from + 3 * k + lane), hn::LoadU(tag, weight + k * kPairLanes + lane), sum);
      }
      hn::StoreU(sum, tag, to + lane);
    }
  }
}

void split_planes_here(const float* pixels, std::size_t count, const float* scale, const float* shift, bool stream,
                       float* const* planes) {
  const hn::ScalableTag<float> tag;
  const std::size_t lanes = hn::Lanes(tag);
  const auto is_aligned = [&](const float* place) {
    return reinterpret_cast<std::uintptr_t>(place) % (lanes * sizeof(float)) == 0;
  };
  const bool past_caches = stream && is_aligned(planes[0]) && is_aligned(planes[1]) && is_aligned(planes[2]);
  const auto store = [&](hn::Vec<decltype(tag)> values, float* to) HWY_ATTR {
    if (past_caches) {
      hn::Stream(values, tag, to);
    } else {
      hn::StoreU(values, tag, to);
    }
  };
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    auto red = hn::Zero(tag);
    auto green = hn::Zero(tag);
    auto blue = hn::Zero(tag);
    auto unused = hn::Zero(tag);
    hn::LoadInterleaved4(tag, pixels + i * kLanesPerPixel, red, green, blue, unused);
    store(hn::MulAdd(red, hn::Set(tag, scale[0]), hn::Set(tag, shift[0])), planes[0] + i);
    store(hn::MulAdd(green, hn::Set(tag, scale[1]), hn::Set(tag, shift[1])), planes[1] + i);
    store(hn::MulAdd(blue, hn::Set(tag, scale[2]), hn::Set(tag, shift[2])), planes[2] + i);
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

void spread_weights(std::span<const float> weights, std::size_t taps, std::vector<float>& into) {
  const std::size_t count = weights.size() / taps;
  into.assign((count + 1) / 2 * taps * 2 * kLanesPerPixel, 0);
  for (std::size_t x = 0; x < count; ++x) {
    for (std::size_t k = 0; k < taps; ++k) {
      float* const lanes = into.data() + ((x / 2 * taps + k) * 2 + x % 2) * kLanesPerPixel;
      std::fill_n(lanes, kLanesPerPixel, weights[x * taps + k]);
    }
  }
}

void blend_pixels(const float* row, const Taps& taps, bool mirrored, float* into) {
  HWY_DYNAMIC_DISPATCH(blend_pixels_here)
  (row, taps.first.data(), taps.weights.data(), taps.taps, taps.first.size(), mirrored, into);
}

void split_planes(const float* pixels, std::size_t count, std::span<const float, 3> scale,
                  std::span<const float, 3> shift, bool past_caches, std::span<float* const, 3> planes) {
  HWY_DYNAMIC_DISPATCH(split_planes_here)(pixels, count, scale.data(), shift.data(), past_caches, planes.data());
}

void finish_stores() { hwy::FlushStream(); }

void to_bfloat16(const float* values, std::size_t count, std::uint16_t* into) {
  HWY_DYNAMIC_DISPATCH(to_bfloat16_here)(values, count, into);
}

void to_uint8(const float* values, std::size_t count, std::uint8_t* into) {
  HWY_DYNAMIC_DISPATCH(to_uint8_here)(values, count, into);
}

}  // namespace gyre::data::internal
#endif
