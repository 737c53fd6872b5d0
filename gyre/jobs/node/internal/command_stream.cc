#include "gyre/jobs/node/internal/command_stream.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"

namespace gyre::jobs::node::internal {

namespace stream_message = orders::stream_message;
using orders::StreamMessage;

namespace {

constexpr std::size_t kLongestReason = 1'000;
/// What the process does not read: all that a client may send, and messages about it.
constexpr std::size_t kMostWaiting = std::size_t{1} << 20;

Bytes encoded(std::uint16_t type, std::span<const std::byte> bytes) {
  return net::encode_message(type, orders::encode_stream(0, bytes));
}

}  // namespace

CommandStream::CommandStream(std::uint32_t number, UniqueFd channel, const orders::StreamRequest& request)
    : number_(number), channel_(std::move(channel)) {
  ::fcntl(channel_.get(), F_SETFL, ::fcntl(channel_.get(), F_GETFL) | O_NONBLOCK);
  waiting_ = as_text(encoded(stream_message::kOpen, as_bytes(encode(request))));
  write();
}

std::uint32_t CommandStream::interest() const { return EPOLLIN | (waiting_.empty() ? 0U : EPOLLOUT); }

void CommandStream::take(const StreamMessage& message, const Send& /*send*/) {
  switch (message.type) {
    case stream_message::kBytes: uncredited_ += message.bytes.size(); break;
    case stream_message::kSize: uncredited_ += orders::kSizeBytes; break;
    case stream_message::kCredit:
      bytes_may_come_ = std::min(bytes_may_come_ + credit_from(message), orders::kStreamWindow);
      break;
    case stream_message::kErrorsCredit:
      errors_may_come_ = std::min(errors_may_come_ + credit_from(message), orders::kStreamWindow);
      break;
    default: break;
  }
  if (uncredited_ > orders::kStreamWindow) {
    throw Error(ErrorCode::kProtocol, "the service sends more on a stream than there is room for");
  }
  waiting_ += as_text(encoded(message.type, message.bytes));
  if (waiting_.size() > kMostWaiting) over_ = "the process that serves the command does not answer";
  write();
}

void CommandStream::step(std::uint32_t events, const Send& send) {
  if ((events & EPOLLOUT) != 0) write();
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) read(send);
}

void CommandStream::write() {
  std::size_t written = 0;
  while (written < waiting_.size()) {
    const ssize_t count = ::send(channel_.get(), waiting_.data() + written, waiting_.size() - written, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) break;
    // It has gone; what it has sent before may still be there.
    written = count < 0 ? waiting_.size() : written + static_cast<std::size_t>(count);
  }
  waiting_.erase(0, written);
}

void CommandStream::read(const Send& send) {
  std::array<char, std::size_t{16} << 10> bytes;
  const ssize_t count = ::recv(channel_.get(), bytes.data(), bytes.size(), 0);
  if (count < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (count <= 0) {
    over_ = exited_ ? "" : "the process that serves the command has ended; the job may have, too";
    return;
  }
  try {
    parser_.append(as_bytes({bytes.data(), static_cast<std::size_t>(count)}));
    while (!over_) {
      const auto message = parser_.next();
      if (!message) return;
      pass_on(*message, send);
    }
  } catch (const Error&) {
    over_ = "the process that serves the command sends what it must not; somebody may have tampered with it";
  }
}

bool CommandStream::spend(const StreamMessage& message) {
  const auto take_from = [](std::uint64_t& window, std::uint64_t bytes) {
    if (bytes > window) return false;
    window -= bytes;
    return true;
  };
  switch (message.type) {
    case stream_message::kBytes: return take_from(bytes_may_come_, message.bytes.size());
    case stream_message::kErrors: return take_from(errors_may_come_, message.bytes.size());
    case stream_message::kCredit: return take_from(uncredited_, credit_from(message));
    case stream_message::kExit: static_cast<void>(exit_from(message)); return !std::exchange(exited_, true);
    default: return false;
  }
}

void CommandStream::pass_on(const net::Message& message, const Send& send) {
  const StreamMessage part = orders::stream_message_from(message);
  if (part.type == stream_message::kClosed) {
    over_ = std::string(as_text(part.bytes).substr(0, kLongestReason));
    return;
  }
  if (!spend(part)) throw Error(ErrorCode::kProtocol, "it sends more than it may");
  send(part.type, orders::encode_stream(number_, part.bytes));
}

}  // namespace gyre::jobs::node::internal
