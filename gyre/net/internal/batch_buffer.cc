#include "gyre/net/internal/batch_buffer.h"

#include <algorithm>
#include <array>
#include <utility>

namespace gyre::net::internal {
namespace {

/// A lane's thread reads from and writes to two neighbours at most at a time.
constexpr std::size_t kMostSpare = 4;

/// Connections may outlive the thread's own objects: of a thread that ends, or of the program's end.
thread_local bool spare_is_gone = false;

struct Spare {
  std::array<std::unique_ptr<std::byte[]>, kMostSpare> rooms;
  ~Spare() { spare_is_gone = true; }
};

Spare& spare() {
  thread_local Spare of_this_thread;
  return of_this_thread;
}

}  // namespace

std::byte* BatchBuffer::take() {
  if (!room_ && !spare_is_gone) {
    auto& rooms = spare().rooms;
    const auto found = std::ranges::find_if(rooms, [](const auto& room) { return room != nullptr; });
    if (found != rooms.end()) room_ = std::move(*found);
  }
  if (!room_) room_ = std::make_unique_for_overwrite<std::byte[]>(kBytes);
  return room_.get();
}

void BatchBuffer::release() {
  if (!room_) return;
  if (!spare_is_gone) {
    auto& rooms = spare().rooms;
    const auto free = std::ranges::find_if(rooms, [](const auto& room) { return room == nullptr; });
    if (free != rooms.end()) *free = std::move(room_);
  }
  room_.reset();
}

}  // namespace gyre::net::internal
