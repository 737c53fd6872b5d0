#include <algorithm>
#include <cstdint>
#include <cstring>

#include "gyre/base/check.h"
#include "gyre/collectives/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "gyre/collectives/internal/move_in_vectors.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "gyre/collectives/internal/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gyre::collectives::HWY_NAMESPACE {

constexpr std::size_t kStreamingAlignmentBytes = 64;  // A cache line, and the largest vector.

// Unlike memcpy it never reads the destination's lines. Vectors are written where they are aligned; memcpy does the
// edges.
void copy_around_cache(std::byte* destination, const std::byte* source, std::size_t size_bytes) {
  const hn::ScalableTag<std::uint8_t> tag;
  const std::size_t lanes = hn::Lanes(tag);
  const std::size_t misaligned = reinterpret_cast<std::uintptr_t>(destination) % kStreamingAlignmentBytes;
  const std::size_t head = std::min(size_bytes, misaligned == 0 ? 0 : kStreamingAlignmentBytes - misaligned);
  std::memcpy(destination, source, head);
  auto* to = reinterpret_cast<std::uint8_t*>(destination);
  const auto* from = reinterpret_cast<const std::uint8_t*>(source);
  std::size_t i = head;
  for (; i + 4 * lanes <= size_bytes; i += 4 * lanes) {
    const auto value0 = hn::LoadU(tag, from + i);
    const auto value1 = hn::LoadU(tag, from + i + lanes);
    const auto value2 = hn::LoadU(tag, from + i + 2 * lanes);
    const auto value3 = hn::LoadU(tag, from + i + 3 * lanes);
    hn::Stream(value0, tag, to + i);
    hn::Stream(value1, tag, to + i + lanes);
    hn::Stream(value2, tag, to + i + 2 * lanes);
    hn::Stream(value3, tag, to + i + 3 * lanes);
  }
  std::memcpy(to + i, from + i, size_bytes - i);
  hwy::FlushStream();
}

// One element at a time for the rest: through a padded vector, so that it is converted by the same instructions.
template <typename Lanes>
void narrow(std::uint16_t* destination, const float* source, std::size_t count) {
  const typename Lanes::Tag tag;
  const std::size_t lanes = hn::Lanes(tag);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) Lanes::store(hn::LoadU(tag, source + i), destination + i);
  if (i == count) return;
  HWY_ALIGN float padded[hn::MaxLanes(tag)] = {};
  HWY_ALIGN std::uint16_t narrowed[hn::MaxLanes(tag)];
  std::memcpy(padded, source + i, (count - i) * sizeof(float));
  Lanes::store(hn::LoadU(tag, padded), narrowed);
  std::memcpy(destination + i, narrowed, (count - i) * sizeof(std::uint16_t));
}

template <typename Lanes>
void widen(float* destination, const std::uint16_t* source, std::size_t count) {
  const typename Lanes::Tag tag;
  const std::size_t lanes = hn::Lanes(tag);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(Lanes::load(source + i), tag, destination + i);
  if (i == count) return;
  HWY_ALIGN std::uint16_t padded[hn::MaxLanes(tag)] = {};
  HWY_ALIGN float widened[hn::MaxLanes(tag)];
  std::memcpy(padded, source + i, (count - i) * sizeof(std::uint16_t));
  hn::StoreU(Lanes::load(padded), tag, widened);
  std::memcpy(destination + i, widened, (count - i) * sizeof(float));
}

void narrow_to(std::uint16_t* destination, const float* source, std::size_t count, DataType half) {
  return half == DataType::kFloat16 ? narrow<Float16Lanes>(destination, source, count)
                                    : narrow<Bfloat16Lanes>(destination, source, count);
}

void widen_from(float* destination, const std::uint16_t* source, std::size_t count, DataType half) {
  return half == DataType::kFloat16 ? widen<Float16Lanes>(destination, source, count)
                                    : widen<Bfloat16Lanes>(destination, source, count);
}

}  // namespace gyre::collectives::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gyre::collectives {
namespace {

HWY_EXPORT(copy_around_cache);
HWY_EXPORT(narrow_to);
HWY_EXPORT(widen_from);

void check_half(DataType half) { GYRE_CHECK((half == DataType::kFloat16 || half == DataType::kBfloat16)); }

}  // namespace

void copy_around_cache(std::byte* destination, const std::byte* source, std::size_t size_bytes) {
  if (size_bytes == 0) return;
  HWY_DYNAMIC_DISPATCH(copy_around_cache)(destination, source, size_bytes);
}

void copy_streaming(std::byte* destination, const std::byte* source, std::size_t size_bytes) {
  if (size_bytes >= kStreamingCopyThresholdBytes) {
    copy_around_cache(destination, source, size_bytes);
  } else if (size_bytes > 0) {
    std::memcpy(destination, source, size_bytes);
  }
}

void narrow_float32(std::uint16_t* destination, const float* source, std::size_t count, DataType half) {
  check_half(half);
  HWY_DYNAMIC_DISPATCH(narrow_to)(destination, source, count, half);
}

void widen_to_float32(float* destination, const std::uint16_t* source, std::size_t count, DataType half) {
  check_half(half);
  HWY_DYNAMIC_DISPATCH(widen_from)(destination, source, count, half);
}

}  // namespace gyre::collectives
#endif
