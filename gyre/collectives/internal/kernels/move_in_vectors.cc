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

// Another destination of a copy; none, or one that is written through the cache or around it.
struct Nowhere {
  void copy(const std::byte* /*source*/, std::size_t /*at*/, std::size_t /*size_bytes*/) const {}
  template <typename Vector>
  void store(Vector /*value*/, std::size_t /*at*/) const {}
};

template <bool kAround>
struct Also {
  std::byte* destination;

  void copy(const std::byte* source, std::size_t at, std::size_t size_bytes) const {
    std::memcpy(destination + at, source + at, size_bytes);
  }
  template <typename Vector>
  void store(Vector value, std::size_t at) const {
    const hn::ScalableTag<std::uint8_t> tag;
    auto* to = reinterpret_cast<std::uint8_t*>(destination) + at;
    if constexpr (kAround) {
      hn::Stream(value, tag, to);
    } else {
      hn::StoreU(value, tag, to);
    }
  }
};

// Unlike memcpy it never reads the destination's lines. Each vector is loaded once. Those written around the cache have
// to be aligned where they are written; memcpy does the edges.
template <typename Other>
void copy_in_vectors(std::byte* destination, const std::byte* source, std::size_t size_bytes, Other other) {
  const hn::ScalableTag<std::uint8_t> tag;
  const std::size_t lanes = hn::Lanes(tag);
  const std::size_t misaligned = reinterpret_cast<std::uintptr_t>(destination) % kStreamingAlignmentBytes;
  const std::size_t head = std::min(size_bytes, misaligned == 0 ? 0 : kStreamingAlignmentBytes - misaligned);
  std::memcpy(destination, source, head);
  other.copy(source, 0, head);
  auto* to = reinterpret_cast<std::uint8_t*>(destination);
  const auto* from = reinterpret_cast<const std::uint8_t*>(source);
  std::size_t i = head;
  for (; i + 4 * lanes <= size_bytes; i += 4 * lanes) {
    const auto value0 = hn::LoadU(tag, from + i);
    const auto value1 = hn::LoadU(tag, from + i + lanes);
    const auto value2 = hn::LoadU(tag, from + i + 2 * lanes);
    const auto value3 = hn::LoadU(tag, from + i + 3 * lanes);
    other.store(value0, i);
    other.store(value1, i + lanes);
    other.store(value2, i + 2 * lanes);
    other.store(value3, i + 3 * lanes);
    hn::Stream(value0, tag, to + i);
    hn::Stream(value1, tag, to + i + lanes);
    hn::Stream(value2, tag, to + i + 2 * lanes);
    hn::Stream(value3, tag, to + i + 3 * lanes);
  }
  std::memcpy(to + i, from + i, size_bytes - i);
  other.copy(source, i, size_bytes - i);
  hwy::FlushStream();
}

void copy_around_cache(std::byte* destination, const std::byte* source, std::size_t size_bytes) {
  copy_in_vectors(destination, source, size_bytes, Nowhere());
}

void copy_to_both(std::byte* through, std::byte* around, const std::byte* source, std::size_t size_bytes) {
  copy_in_vectors(around, source, size_bytes, Also<false>{through});
}

void copy_around_to_both(std::byte* first, std::byte* second, const std::byte* source, std::size_t size_bytes) {
  const auto distance = reinterpret_cast<std::uintptr_t>(first) - reinterpret_cast<std::uintptr_t>(second);
  if (distance % kStreamingAlignmentBytes == 0) {
    return copy_in_vectors(second, source, size_bytes, Also<true>{first});
  }
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
