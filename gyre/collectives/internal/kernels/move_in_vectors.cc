#include <algorithm>
#include <cstdint>
#include <cstring>

#include "gyre/base/check.h"
#include "gyre/collectives/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "gyre/collectives/internal/kernels/move_in_vectors.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "gyre/collectives/internal/kernels/lanes-inl.h"

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

// Each vector is loaded once. Those written around the cache have to be aligned where they are written; memcpy does the
// edges.
template <bool kFirstAround>
void copy_twice(std::byte* first, std::byte* second, const std::byte* source, std::size_t size_bytes) {
  const hn::ScalableTag<std::uint8_t> tag;
  const std::size_t lanes = hn::Lanes(tag);
  const std::size_t misaligned = reinterpret_cast<std::uintptr_t>(second) % kStreamingAlignmentBytes;
  const std::size_t head = std::min(size_bytes, misaligned == 0 ? 0 : kStreamingAlignmentBytes - misaligned);
  std::memcpy(first, source, head);
  std::memcpy(second, source, head);
  auto* to_first = reinterpret_cast<std::uint8_t*>(first);
  auto* to_second = reinterpret_cast<std::uint8_t*>(second);
  const auto* from = reinterpret_cast<const std::uint8_t*>(source);
  const auto store_first = [&](auto value, std::size_t at) {
    if constexpr (kFirstAround) {
      hn::Stream(value, tag, to_first + at);
    } else {
      hn::StoreU(value, tag, to_first + at);
    }
  };
  std::size_t i = head;
  for (; i + 4 * lanes <= size_bytes; i += 4 * lanes) {
    const auto value0 = hn::LoadU(tag, from + i);
    const auto value1 = hn::LoadU(tag, from + i + lanes);
    const auto value2 = hn::LoadU(tag, from + i + 2 * lanes);
    const auto value3 = hn::LoadU(tag, from + i + 3 * lanes);
    store_first(value0, i);
    store_first(value1, i + lanes);
    store_first(value2, i + 2 * lanes);
    store_first(value3, i + 3 * lanes);
    hn::Stream(value0, tag, to_second + i);
    hn::Stream(value1, tag, to_second + i + lanes);
    hn::Stream(value2, tag, to_second + i + 2 * lanes);
    hn::Stream(value3, tag, to_second + i + 3 * lanes);
  }
  std::memcpy(to_first + i, from + i, size_bytes - i);
  std::memcpy(to_second + i, from + i, size_bytes - i);
  hwy::FlushStream();
}

void copy_to_both(std::byte* through, std::byte* around, const std::byte* source, std::size_t size_bytes) {
  copy_twice<false>(through, around, source, size_bytes);
}

void copy_around_to_both(std::byte* first, std::byte* second, const std::byte* source, std::size_t size_bytes) {
  const auto distance = reinterpret_cast<std::uintptr_t>(first) - reinterpret_cast<std::uintptr_t>(second);
  if (distance % kStreamingAlignmentBytes == 0) return copy_twice<true>(first, second, source, size_bytes);
  copy_around_cache(first, source, size_bytes);
  copy_around_cache(second, source, size_bytes);
}

}  // namespace gyre::collectives::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gyre::collectives {
namespace {

HWY_EXPORT(copy_around_cache);
HWY_EXPORT(copy_around_to_both);
HWY_EXPORT(copy_to_both);

}  // namespace

void copy_around_cache(std::byte* destination, const std::byte* source, std::size_t size_bytes) {
  if (size_bytes == 0) return;
  HWY_DYNAMIC_DISPATCH(copy_around_cache)(destination, source, size_bytes);
}

void copy_to_both(std::byte* through, std::byte* around, const std::byte* source, std::size_t size_bytes) {
  if (size_bytes == 0) return;
  HWY_DYNAMIC_DISPATCH(copy_to_both)(through, around, source, size_bytes);
}

void copy_around_to_both(std::byte* first, std::byte* second, const std::byte* source, std::size_t size_bytes) {
  if (size_bytes == 0) return;
  HWY_DYNAMIC_DISPATCH(copy_around_to_both)(first, second, source, size_bytes);
}

void copy_streaming(std::byte* destination, const std::byte* source, std::size_t size_bytes) {
  if (size_bytes >= kStreamingCopyThresholdBytes) {
    copy_around_cache(destination, source, size_bytes);
  } else if (size_bytes > 0) {
    std::memcpy(destination, source, size_bytes);
  }
}

}  // namespace gyre::collectives
#endif
