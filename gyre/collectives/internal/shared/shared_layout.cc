#include "gyre/collectives/internal/shared/shared_layout.h"

#include <fmt/format.h>

#include "gyre/base/bytes.h"
#include "gyre/base/check.h"
#include "gyre/base/error.h"

namespace gyre::collectives::internal {
namespace {

constexpr std::uint64_t kMagic = 0x4779726500000000;  // "Gyre"
constexpr std::uint64_t kVersion = 5;

std::size_t up_to_page(std::size_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

constexpr std::size_t odd_pages(std::size_t pages) { return pages % 2 == 1 ? pages : pages + 1; }

std::size_t control_bytes(int local_size) {
  return up_to_page(sizeof(ControlWords) + static_cast<std::size_t>(local_size) * sizeof(RankLine));
}

constexpr std::size_t kMailboxStride = odd_pages(kSlots * kSlotBytes / kPageBytes) * kPageBytes + kStaggerBytes;

std::size_t mailbox_bytes(int local_size) { return static_cast<std::size_t>(local_size) * kMailboxStride; }

std::uint64_t signature_for(int local_size) {
  return kMagic | (kVersion << 16) | static_cast<std::uint64_t>(local_size);
}

}  // namespace

SharedLayout::SharedLayout(std::span<std::byte> segment, int local_size) : segment_(segment), local_size_(local_size) {
  GYRE_CHECK(local_size >= 1);
  GYRE_CHECK(local_size <= 0xffff);
  const std::size_t fixed = control_bytes(local_size) + mailbox_bytes(local_size);
  if (segment.size() < fixed) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("a lane's segment of {} is too small for {} ranks on a host; at least {} are needed "
                            "(ask segment_bytes_for)",
                            format_bytes(segment.size()), local_size, format_bytes(fixed)));
  }
  // What is left is an equal number of strides; the mapping may have rounded the segment up to a page.
  const std::size_t room = (segment.size() - fixed) / static_cast<std::size_t>(local_size);
  arena_pages_ = room < kStaggerBytes ? 0 : (room - kStaggerBytes) / kPageBytes;
  if (arena_pages_ % 2 == 0 && arena_pages_ > 0) --arena_pages_;

  std::uint64_t found = control().signature.load(std::memory_order_acquire);
  const std::uint64_t expected = signature_for(local_size);
  if (found == 0) control().signature.compare_exchange_strong(found, expected, std::memory_order_acq_rel);
  if (found != 0 && found != expected) {
    throw Error(ErrorCode::kMismatch,
                fmt::format("the lane's shared memory was laid out as {:#x}, this rank expects {:#x}: do all ranks of "
                            "this host run the same version of Gyre?",
                            found, expected));
  }
}

std::size_t SharedLayout::segment_bytes_for(int local_size, std::size_t arena_bytes) {
  GYRE_CHECK(local_size >= 1);
  const std::size_t fixed = control_bytes(local_size) + mailbox_bytes(local_size);
  if (arena_bytes == 0) return fixed;
  const std::size_t stride = odd_pages(up_to_page(arena_bytes) / kPageBytes) * kPageBytes + kStaggerBytes;
  return fixed + static_cast<std::size_t>(local_size) * stride;
}

RankLine& SharedLayout::line(int local_rank) const {
  return reinterpret_cast<RankLine*>(segment_.data() + sizeof(ControlWords))[local_rank];
}

std::byte* SharedLayout::slot(int local_rank, std::size_t index) const {
  return segment_.data() + control_bytes(local_size_) + static_cast<std::size_t>(local_rank) * kMailboxStride +
         index * kSlotBytes;
}

std::span<std::byte> SharedLayout::arena(int local_rank) const {
  if (arena_pages_ == 0) return {};
  const std::size_t size = arena_pages_ * kPageBytes;
  const std::size_t start = control_bytes(local_size_) + mailbox_bytes(local_size_) +
                            static_cast<std::size_t>(local_rank) * (size + kStaggerBytes);
  return segment_.subspan(start, size);
}

}  // namespace gyre::collectives::internal
