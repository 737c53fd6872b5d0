#pragma once

#include <poll.h>

#include <atomic>
#include <concepts>
#include <cstddef>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "gyre/base/clock.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"

namespace gyre::net {

/// An ordered, reliable, bidirectional flow of bytes to one peer. Non-blocking at its core, so that
/// one thread can send and receive at the same time. One thread may read while another one writes;
/// otherwise not thread-safe. Errors: Error(kPeerLost) when the other end is gone, naming `peer()`.
///
/// What has failed stays failed: after a failed write every later write throws the first cause again, and after a
/// failed read both do. Reading goes on after a failed write, because what the peer has sent before it ended may still
/// be there.
class Stream {
 public:
  Stream() = default;
  virtual ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  /// Bytes taken now; 0 when it would block. Never 0 for "closed": that is an Error(kPeerLost).
  std::size_t read_some(std::span<std::byte> into);
  std::size_t write_some(std::span<const std::byte> from);

  /// Ends the use of this stream: from now on reads and writes throw `cause`, unless they have failed before. For those
  /// who give up in the middle of a message: what follows on the stream would be taken for the rest of it. Thread-safe.
  void fail(const Error& cause);

  /// For poll(2): readable and writable mean that the call above would make progress.
  virtual int fd() const = 0;
  /// Who is at the other end, for messages: "rank 3 (tcp:10.0.0.2:4711)".
  virtual const std::string& peer() const = 0;

 protected:
  // As the public ones; called until one of them throws.
  virtual std::size_t receive_some(std::span<std::byte> into) = 0;
  virtual std::size_t send_some(std::span<const std::byte> from) = 0;

 private:
  /// The first failure of one direction. Set once; lock-free to ask, since every read and write does.
  class FirstFailure {
   public:
    ~FirstFailure() { delete cause_.load(std::memory_order_acquire); }
    void set(const Error& cause);
    void throw_if_set() const;

   private:
    std::atomic<const Error*> cause_{nullptr};
  };

  FirstFailure read_failure_;
  FirstFailure write_failure_;
};

/// Wraps a connected, non-blocking socket (tcp, unix or one end of a socket pair).
std::unique_ptr<Stream> make_socket_stream(UniqueFd socket, std::string peer);

/// The same over a socket that the caller owns and closes only when nobody uses the stream any more.
std::unique_ptr<Stream> make_socket_stream_over(int socket_fd, std::string peer);

/// Two ends of a flow that stays in this process; `peers` name what each end sees.
std::pair<std::unique_ptr<Stream>, std::unique_ptr<Stream>> make_stream_pair(std::pair<std::string, std::string> peers);

/// All of the bytes, or Error(kTimeout | kPeerLost). Whoever gives up in the middle of them has failed the stream.
void read_exactly(Stream& stream, std::span<std::byte> into, Deadline deadline);
void write_exactly(Stream& stream, std::span<const std::byte> from, Deadline deadline);

/// The same with another way to wait: `wait(events)` returns when the stream is readable (POLLIN) or writable
/// (POLLOUT), or throws.
template <std::invocable<short> Wait>
void read_exactly(Stream& stream, std::span<std::byte> into, const Wait& wait) {
  const std::size_t size = into.size();
  try {
    while (!into.empty()) {
      const std::size_t count = stream.read_some(into);
      into = into.subspan(count);
      if (count == 0) wait(POLLIN);
    }
  } catch (const std::exception& error) {
    if (into.size() < size) stream.fail(as_error(error));
    throw;
  }
}

template <std::invocable<short> Wait>
void write_exactly(Stream& stream, std::span<const std::byte> from, const Wait& wait) {
  while (!from.empty()) {
    const std::size_t count = stream.write_some(from);
    from = from.subspan(count);
    if (count > 0) continue;
    try {
      wait(POLLOUT);
    } catch (const std::exception& error) {
      // Even before the first byte has gone: an encrypted stream has them ready, and would send them later.
      stream.fail(as_error(error));
      throw;
    }
  }
}

}  // namespace gyre::net
