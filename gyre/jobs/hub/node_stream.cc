#include "gyre/jobs/hub/node_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "gyre/base/error.h"

namespace gyre::jobs::hub {

namespace {

namespace stream_message = orders::stream_message;
using orders::StreamMessage;

Bytes copy_of(std::span<const std::byte> bytes) { return {bytes.begin(), bytes.end()}; }

[[noreturn]] void refuse(std::string_view who, std::string_view what) {
  throw Error(ErrorCode::kProtocol, fmt::format("{} sends {} on a stream", who, what));
}

}  // namespace

NodeStream::~NodeStream() {
  const bool over = [&] {
    const MutexLock lock(mutex_);
    return over_;
  }();
  if (!over) to_node_(stream_message::kClosed, {});
}

void NodeStream::check_client(const StreamMessage& message) {
  const auto spend = [&](std::size_t bytes) GYRE_REQUIRES(mutex_) {
    if (bytes > client_may_send_) refuse("the client", "more than there is room for");
    client_may_send_ -= bytes;
  };
  const auto give = [&](std::uint64_t& window) {
    const std::uint32_t bytes = credit_from(message);
    if (window + bytes > orders::kStreamWindow) refuse("the client", "credit for more than it has got");
    window += bytes;
  };
  switch (message.type) {
    case stream_message::kBytes:
      if (client_ended_) refuse("the client", "bytes after their end");
      return spend(message.bytes.size());
    case stream_message::kSize: static_cast<void>(size_from(message)); return spend(orders::kSizeBytes);
    case stream_message::kCredit: return give(node_may_send_);
    case stream_message::kErrorsCredit: return give(errors_may_come_);
    case stream_message::kEnd: client_ended_ = true; return;
    case stream_message::kClosed: return;
    default: refuse("the client", "a message that only the other side sends");
  }
}

void NodeStream::check_node(const StreamMessage& message) {
  const auto spend = [&](std::uint64_t& window) {
    if (message.bytes.size() > window) refuse("a node", "more than there is room for");
    window -= message.bytes.size();
  };
  switch (message.type) {
    case stream_message::kBytes: return spend(node_may_send_);
    case stream_message::kErrors: return spend(errors_may_come_);
    case stream_message::kCredit:
      client_may_send_ += credit_from(message);
      if (client_may_send_ > orders::kStreamWindow) refuse("a node", "credit for more than it has got");
      return;
    case stream_message::kExit:
      static_cast<void>(exit_from(message));
      if (std::exchange(exited_, true)) refuse("a node", "two exit codes");
      return;
    case stream_message::kEnd: return;
    default: refuse("a node", "a message that only the other side sends");
  }
}

void NodeStream::take(std::string_view bytes) {
  std::vector<std::pair<std::uint16_t, Bytes>> messages;
  {
    const MutexLock lock(mutex_);
    parser_.append(as_bytes(bytes));
    while (const auto message = parser_.next()) {
      const StreamMessage part = orders::stream_message_from(*message);
      check_client(part);
      if (!over_) messages.emplace_back(part.type, copy_of(part.bytes));
    }
  }
  for (auto& [type, rest] : messages) to_node_(type, std::move(rest));
}

NodeStream::Piece NodeStream::read(std::size_t most_bytes) {
  const MutexLock lock(mutex_);
  Piece piece;
  if (waiting_.size() <= most_bytes) {
    piece.bytes = std::exchange(waiting_, {});
    piece.end = over_;
  } else {
    piece.bytes = waiting_.substr(0, most_bytes);
    waiting_.erase(0, most_bytes);
  }
  return piece;
}

void NodeStream::set_wake(std::function<void()> wake) {
  const MutexLock lock(mutex_);
  wake_ = std::move(wake);
}

void NodeStream::wake() {
  const std::function<void()> call = [&] {
    const MutexLock lock(mutex_);
    return wake_;
  }();
  if (call) call();
}

void NodeStream::add(std::uint16_t type, std::span<const std::byte> bytes) {
  waiting_ += as_text(net::encode_message(type, orders::encode_stream(0, bytes)));
}

void NodeStream::deliver(const StreamMessage& message) {
  if (message.type == stream_message::kClosed) return close(as_text(message.bytes));
  {
    const MutexLock lock(mutex_);
    if (over_) return;
    check_node(message);
    add(message.type, message.bytes);
  }
  wake();
}

void NodeStream::close(std::string_view why) {
  {
    const MutexLock lock(mutex_);
    if (std::exchange(over_, true)) return;
    add(stream_message::kClosed, as_bytes(why));
  }
  wake();
}

}  // namespace gyre::jobs::hub
