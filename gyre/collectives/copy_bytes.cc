#include "gyre/collectives/copy_bytes.h"

#include <cstring>

#include "gyre/collectives/kernels.h"

namespace gyre::collectives {
namespace {

/// Shorter ones never become a `rep movsb`.
constexpr std::size_t kShortBytes = 1024;
/// From here on the way through memory is the faster one.
constexpr std::size_t kAroundCacheBytes = std::size_t{4} * 1024;

}  // namespace

void copy_bytes(std::byte* to, const std::byte* from, std::size_t size_bytes) {
  if (size_bytes == 0 || to == from) return;
  if (size_bytes < kShortBytes) {
    std::memcpy(to, from, size_bytes);
  } else {
    reduce(to, {&from, 1}, size_bytes, DataType::kUint8, ReduceOperation::kSum);
  }
}

void copy_for_others(std::byte* to, const std::byte* from, std::size_t size_bytes) {
  if (size_bytes < kAroundCacheBytes) {
    copy_bytes(to, from, size_bytes);
  } else {
    copy_around_cache(to, from, size_bytes);
  }
}

}  // namespace gyre::collectives
