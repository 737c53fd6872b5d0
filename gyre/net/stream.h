#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "gyre/base/clock.h"
#include "gyre/base/file.h"

namespace gyre::net {

/// An ordered, reliable, bidirectional flow of bytes to one peer. Non-blocking at its core, so that
/// one thread can send and receive at the same time. One thread may read while another one writes;
/// otherwise not thread-safe. Errors: Error(kPeerLost) when the other end is gone, naming `peer()`.
class Stream {
 public:
  virtual ~Stream() = default;

  /// Bytes taken now; 0 when it would block. Never 0 for "closed": that is an Error(kPeerLost).
  virtual std::size_t read_some(std::span<std::byte> into) = 0;
  virtual std::size_t write_some(std::span<const std::byte> from) = 0;

  /// For poll(2): readable and writable mean that the call above would make progress.
  virtual int fd() const = 0;
  /// Who is at the other end, for messages: "rank 3 (tcp:10.0.0.2:4711)".
  virtual const std::string& peer() const = 0;
};

/// Wraps a connected, non-blocking socket (tcp, unix or one end of a socket pair).
std::unique_ptr<Stream> make_socket_stream(UniqueFd socket, std::string peer);

/// Two ends of a flow that stays in this process; `peers` name what each end sees.
std::pair<std::unique_ptr<Stream>, std::unique_ptr<Stream>> make_stream_pair(std::pair<std::string, std::string> peers);

/// All of `into`, or Error(kTimeout | kPeerLost).
void read_exactly(Stream& stream, std::span<std::byte> into, Deadline deadline);
void write_exactly(Stream& stream, std::span<const std::byte> from, Deadline deadline);

}  // namespace gyre::net
