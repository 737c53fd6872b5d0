#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "gyre/base/file.h"
#include "gyre/base/process.h"
#include "gyre/jobs/orders/byte_stream.h"
#include "gyre/net/message.h"

namespace gyre::jobs::node::internal {

/// The node's ends of the streams that clients of the service have opened (ADR 134): connections to ports of this
/// machine's loopback address, which are reset if their streams end early. Nothing here waits, and no stream holds more
/// than its window. For one thread.
class ByteStreams {
 public:
  using Send = std::function<void(std::uint16_t type, std::span<const std::byte> payload)>;

  /// Error(kResourceExhausted).
  ByteStreams();
  ~ByteStreams();
  ByteStreams(const ByteStreams&) = delete;
  ByteStreams& operator=(const ByteStreams&) = delete;

  /// The attempt to whose streams it answers, and with whose account it connects; unset: ours. Streams of another one
  /// end.
  void serve(const std::string& attempt, const std::optional<UserId>& account, const Send& send);
  const std::string& attempt() const { return attempt_; }
  /// Nobody listens any more: all streams end.
  void disconnected();
  /// False: it is about something else. Error(kProtocol | kCorruptData).
  bool obey(const net::Message& message, const Send& send);
  /// Readable when step() has something to do.
  int fd() const { return epoll_.get(); }
  void step(const Send& send);

 private:
  class Stream;

  void open(std::uint32_t number, const orders::StreamRequest& request, const Send& send);
  void end_all(const std::string& why, const Send& send);
  /// Adapts what is waited for, or ends the stream.
  void settle(std::uint32_t number, const Send& send);

  UniqueFd epoll_;
  std::string attempt_;
  std::optional<UserId> account_;
  std::map<std::uint32_t, std::unique_ptr<Stream>> streams_;
};

}  // namespace gyre::jobs::node::internal
