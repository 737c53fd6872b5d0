#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "gyre/base/bytes.h"
#include "gyre/base/thread_annotations.h"
#include "gyre/jobs/orders/byte_stream.h"
#include "gyre/net/message.h"

namespace gyre::jobs::hub {

/// One stream between a client and a node (ADR 134), in between. It passes on the messages of both, and keeps those for
/// the client until they are read: no more than the stream's windows, since it holds both sides to theirs. Thread-safe.
class NodeStream {
 public:
  /// Towards the node: what follows the stream's number. Thread-safe, and may be called for as long as this object
  /// lives.
  using Post = std::function<void(std::uint16_t type, Bytes bytes)>;

  explicit NodeStream(Post to_node) : to_node_(std::move(to_node)) {}
  /// The client has gone: the node hears that it is over.
  ~NodeStream();
  NodeStream(const NodeStream&) = delete;
  NodeStream& operator=(const NodeStream&) = delete;

  // ---- the client's side
  /// What has come from the client, cut anywhere. Error(kProtocol | kCorruptData).
  void take(std::string_view bytes);
  struct Piece {
    std::string bytes{};
    bool end = false;  ///< It is over with these.
  };
  /// What goes to the client next. Waits for nothing.
  Piece read(std::size_t most_bytes);
  /// Called, by any thread, when there is something to read.
  void set_wake(std::function<void()> wake);

  // ---- the node's side
  /// Error(kProtocol | kCorruptData).
  void deliver(const orders::StreamMessage& message);
  /// It is over. `why`: for the client's user; empty: as it should be.
  void close(std::string_view why);

 private:
  void check_client(const orders::StreamMessage& message) GYRE_REQUIRES(mutex_);
  void check_node(const orders::StreamMessage& message) GYRE_REQUIRES(mutex_);
  void add(std::uint16_t type, std::span<const std::byte> bytes) GYRE_REQUIRES(mutex_);
  void wake();

  const Post to_node_;
  Mutex mutex_;
  net::MessageParser parser_ GYRE_GUARDED_BY(mutex_);
  std::uint64_t client_may_send_ GYRE_GUARDED_BY(mutex_) = orders::kStreamWindow;
  std::uint64_t node_may_send_ GYRE_GUARDED_BY(mutex_) = orders::kStreamWindow;
  std::uint64_t errors_may_come_ GYRE_GUARDED_BY(mutex_) = orders::kStreamWindow;
  bool exited_ GYRE_GUARDED_BY(mutex_) = false;  ///< The command, of which no more comes.
  bool client_ended_ GYRE_GUARDED_BY(mutex_) = false;
  std::string waiting_ GYRE_GUARDED_BY(mutex_);  ///< For the client.
  bool over_ GYRE_GUARDED_BY(mutex_) = false;
  std::function<void()> wake_ GYRE_GUARDED_BY(mutex_);
};

}  // namespace gyre::jobs::hub
