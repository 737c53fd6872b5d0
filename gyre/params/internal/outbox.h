#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "gyre/base/thread_annotations.h"
#include "gyre/group/messages/point_to_point.h"

namespace gyre::params::internal {

/// What is on its way from a server to one worker. Thread-safe.
class Outbox {
 public:
  /// `keeps`: the memory of the message, if it needs an owner.
  void send(group::PointToPoint& messages, int rank, std::int64_t tag, std::uint8_t type,
            std::span<const std::byte> bytes, std::shared_ptr<const void> keeps);
  /// Waits for all that has been sent. The worker has its answers when it asks for something new; only its thanks may
  /// still be on their way.
  void wait();

 private:
  struct Sending {
    group::MessageHandle handle;
    std::shared_ptr<const void> keeps;
  };

  Mutex mutex_;
  std::vector<Sending> sending_ GYRE_GUARDED_BY(mutex_);
};

}  // namespace gyre::params::internal
