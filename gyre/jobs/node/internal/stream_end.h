#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "gyre/jobs/orders/byte_stream.h"

namespace gyre::jobs::node::internal {

/// The node's end of one stream, between messages and a descriptor. Nothing here waits.
class StreamEnd {
 public:
  using Send = std::function<void(std::uint16_t type, std::span<const std::byte> payload)>;

  virtual ~StreamEnd() = default;
  virtual int fd() const = 0;
  /// What epoll is to wait for at it.
  virtual std::uint32_t interest() const = 0;
  /// Set once it is over: why; empty: as it should be.
  virtual const std::optional<std::string>& over() const = 0;
  /// From the client. Error(kProtocol | kCorruptData).
  virtual void take(const orders::StreamMessage& message, const Send& send) = 0;
  /// What epoll says of the descriptor.
  virtual void step(std::uint32_t events, const Send& send) = 0;
};

}  // namespace gyre::jobs::node::internal
