#include "gyre/data/scratch_buffer.h"

#include <fmt/format.h>

#include <cstring>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"

namespace gyre::data {

void MemoryBudget::reserve(std::uint64_t bytes) {
  const std::uint64_t used = used_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  if (used + bytes <= total_bytes_) return;
  release(bytes);
  throw Error(ErrorCode::kResourceExhausted,
              fmt::format("the memory budget of {} is too small: {} are in use, and {} more are needed",
                          format_bytes(total_bytes_), format_bytes(used), format_bytes(bytes)));
}

std::span<std::byte> ScratchBuffer::take(std::size_t bytes) {
  if (bytes > capacity_) {
    clear();
    return grow(bytes, 0);
  }
  return {memory_.get(), bytes};
}

std::span<std::byte> ScratchBuffer::grow(std::size_t bytes, std::size_t kept) {
  if (bytes > capacity_) {
    if (budget_) budget_->reserve(bytes);
    auto larger = std::make_unique_for_overwrite<std::byte[]>(bytes);
    if (kept > 0) std::memcpy(larger.get(), memory_.get(), kept);
    clear();
    memory_ = std::move(larger);
    capacity_ = bytes;
  }
  return {memory_.get(), bytes};
}

void ScratchBuffer::clear() {
  memory_.reset();
  if (budget_) budget_->release(capacity_);
  capacity_ = 0;
}

}  // namespace gyre::data
