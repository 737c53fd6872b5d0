#include "gyre/params/internal/outbox.h"

#include <utility>

namespace gyre::params::internal {

void Outbox::send(group::PointToPoint& messages, int rank, std::int64_t tag, std::uint8_t type,
                  std::span<const std::byte> bytes, std::shared_ptr<const void> keeps) {
  const MutexLock lock(mutex_);
  sending_.push_back({messages.send(rank, tag, type, bytes), std::move(keeps)});
}

void Outbox::wait() {
  std::vector<Sending> sending;
  {
    const MutexLock lock(mutex_);
    sending.swap(sending_);
  }
  for (const Sending& one : sending) one.handle.wait();
}

}  // namespace gyre::params::internal
