#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <thread>

#include "gyre/base/file.h"
#include "gyre/base/thread_annotations.h"
#include "gyre/net/endpoint.h"
#include "gyre/net/stream.h"
#include "gyre/store/node/node.h"

namespace gyre::store::node {

/// The doors of a node: a TCP port for other nodes, who prove that they know the job's key and go on over TLS, and a
/// Unix socket in the store's folder for programs of the same account. A thread for each connection.
class Server {
 public:
  static constexpr std::size_t kMostConnections = 1'024;

  /// Listens at both until it is destroyed. Without an endpoint: for this node's clients alone. Where there are
  /// `most_connections`, a new one takes the place of one that rests between two requests; if none does, it is asked to
  /// come again later. Where the process has no descriptor or thread for a new one, one that rests is closed, too, and
  /// the new one waits until there is. Error(kIo, …).
  Server(Node& node, const ChunkFolder& folder, const std::optional<net::Endpoint>& endpoint,
         std::size_t most_connections = kMostConnections);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

 private:
  class PeerDoor;
  struct Connection {
    std::unique_ptr<net::Stream> stream{};  ///< Null when it is over.
    std::atomic<bool> rests = false;        ///< It has been served, and has not asked again.
    std::thread thread{};
  };
  enum class Kind { kClient, kPeer };

  void accept_clients();
  void accept_client();
  void add(std::unique_ptr<net::Stream> stream, Kind kind) GYRE_EXCLUDES(mutex_);
  bool make_room() GYRE_EXCLUDES(mutex_);
  /// Closes one that rests; false where none does.
  bool close_one() GYRE_REQUIRES(mutex_);
  void serve(Connection& connection, Kind kind);
  void refuse(net::Stream& stream) const;
  void answer(net::Stream& stream, Kind kind, std::uint16_t type, const Bytes& payload, Bytes& buffer);
  void answer_read(net::Stream& stream, Kind kind, const Bytes& payload, Bytes& buffer);
  void send_catalog(net::Stream& stream);

  Node& node_;
  const std::size_t most_connections_;
  const std::string socket_path_;
  UniqueFd listener_;
  UniqueFd stop_;  ///< An eventfd.
  Mutex mutex_;
  std::list<Connection> connections_ GYRE_GUARDED_BY(mutex_);
  bool ending_ GYRE_GUARDED_BY(mutex_) = false;
  std::thread accepting_;
  std::unique_ptr<PeerDoor> peers_;
};

}  // namespace gyre::store::node
