#include "gyre/store/node/server.h"

#include <fmt/format.h>
#include <poll.h>
#include <spdlog/logger.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <boost/asio/post.hpp>
#include <utility>

#include "gyre/base/error.h"
#include "gyre/base/thread.h"
#include "gyre/net/async/acceptor.h"
#include "gyre/net/async/event_loop.h"
#include "gyre/net/message.h"
#include "gyre/net/psk_tls.h"
#include "gyre/net/socket.h"
#include "gyre/store/node/wire.h"

namespace gyre::store::node {

namespace {

/// Those that are asked to come again later, beyond the others; more are closed at once.
constexpr std::size_t kMostRefused = 64;
constexpr std::chrono::milliseconds kRefusalLimit{2'000};
constexpr std::size_t kMostUnixPath = 107;
constexpr std::size_t kCatalogPartBytes = std::size_t{8} << 20;
/// Of each connection that has asked for bytes.
constexpr std::size_t kBufferBytes = 2 * Reading::kPieceBytes;
/// Bytes that are sent together with the message that announces them: a record of TLS.
constexpr std::size_t kWithAnnouncement = std::size_t{15} << 10;
/// When the process has run out of descriptors or threads: time for others to give some back.
constexpr int kPauseWhenExhaustedMs = 100;
constexpr int kPauseForOneMs = 5;
/// Who asked and does not read the reply is given up.
constexpr std::chrono::milliseconds kSendLimit{60'000};

Deadline send_deadline() { return Deadline::after(kSendLimit); }

UniqueFd listen_for_clients(const std::string& path) {
  if (path.size() > kMostUnixPath) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("the path of the socket, {}, is longer than {} bytes; name a shorter --store-dir", path,
                            kMostUnixPath));
  }
  ::unlink(path.c_str());  // This process has the folder's lock: a socket that is there is nobody's.
  UniqueFd listener = net::listen_on({.kind = net::Endpoint::Kind::kUnix, .host = path});
  ::chmod(path.c_str(), S_IRUSR | S_IWUSR);
  return listener;
}

}  // namespace

/// Admits other nodes. Its loop's thread does the handshakes.
class Server::PeerDoor {
 public:
  PeerDoor(Server& server, const net::Endpoint& endpoint) {
    const NodeOptions& options = server.node_.options();
    net::AcceptorOptions accepting;
    accepting.what = "the store";
    accepting.key = options.key;
    accepting.rank = options.id;
    accepting.check = [&server](const net::Hello& hello) { check(server.node_, hello); };
    accepting.admitted = [&server](const net::Hello& hello, const std::shared_ptr<net::AsyncSocket>& socket,
                                   std::shared_ptr<net::TlsSession> tls) {
      server.node_.lives(hello.rank);
      std::string peer = fmt::format("node {}", hello.rank);
      UniqueFd fd = net::release_socket(*socket);
      server.add(tls ? net::make_tls_stream(std::move(fd), std::move(tls), std::move(peer))
                     : net::make_socket_stream(std::move(fd), std::move(peer)),
                 Kind::kPeer);
    };
    accepting.logger = options.logger;
    acceptor_ = std::make_shared<net::Acceptor>(loop_.context(), std::move(accepting));
    auto listener = std::make_shared<UniqueFd>(net::listen_on(endpoint));
    asio::post(loop_.context(), [this, listener] { acceptor_->listen(std::move(*listener)); });
  }
  ~PeerDoor() { loop_.stop(); }
  PeerDoor(const PeerDoor&) = delete;
  PeerDoor& operator=(const PeerDoor&) = delete;

 private:
  static void check(Node& node, const net::Hello& hello) {
    if (hello.purpose != kPurpose) throw Error(ErrorCode::kProtocol, "the connection was made for something else");
    if (hello.channel != node.catalog().fingerprint()) {
      throw Error(ErrorCode::kMismatch,
                  fmt::format("node {} has listed another data set, or another version of it", hello.rank));
    }
    const auto members = node.membership().now();
    // A newer node than this one has heard of is admitted: it knows the key, and brings the list that names it.
    if (!members->has(hello.rank) && hello.epoch <= members->epoch) {
      throw Error(ErrorCode::kMismatch, fmt::format("node {} is not part of the store", hello.rank));
    }
  }

  net::EventLoop loop_;
  std::shared_ptr<net::Acceptor> acceptor_;
};

Server::Server(Node& node, const ChunkFolder& folder, const std::optional<net::Endpoint>& endpoint,
               std::size_t most_connections)
    : node_(node),
      most_connections_(most_connections),
      socket_path_(folder.socket().string()),
      listener_(listen_for_clients(socket_path_)),
      stop_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!stop_) throw system_error("cannot make an eventfd", errno);
  if (endpoint) peers_ = std::make_unique<PeerDoor>(*this, *endpoint);
  accepting_ = start_thread("serving a store", [this] { accept_clients(); });
}

Server::~Server() {
  const std::uint64_t one = 1;
  static_cast<void>(!::write(stop_.get(), &one, sizeof(one)));
  accepting_.join();
  peers_.reset();
  node_.stop();
  std::list<Connection> ending;
  {
    const MutexLock lock(mutex_);
    ending_ = true;
    for (Connection& connection : connections_) {
      if (connection.stream) ::shutdown(connection.stream->fd(), SHUT_RDWR);
    }
  }
  // Nothing is added any more, and the threads only mark themselves.
  for (;;) {
    const MutexLock lock(mutex_);
    if (connections_.empty()) break;
    ending.splice(ending.begin(), connections_, connections_.begin());
  }
  for (Connection& connection : ending) connection.thread.join();
  ::unlink(socket_path_.c_str());
}

void Server::accept_clients() {
  bool exhausted = false;
  for (;;) {
    std::array<pollfd, 2> waits{
        {{.fd = listener_.get(), .events = POLLIN, .revents = 0}, {.fd = stop_.get(), .events = POLLIN, .revents = 0}}};
    ::poll(waits.data(), waits.size(), -1);
    if (waits[1].revents != 0) return;
    try {
      accept_client();
      exhausted = false;
    } catch (const Error& error) {
      const bool was_exhausted = std::exchange(exhausted, error.code() == ErrorCode::kResourceExhausted);
      if (!was_exhausted) node_.options().logger->warn("the store cannot accept a connection: {}", error.what());
      if (!exhausted) continue;
      // What waits still waits, so the listener stays ready.
      ::poll(&waits[1], 1, make_room() ? kPauseForOneMs : kPauseWhenExhaustedMs);
    }
  }
}

void Server::accept_client() {
  UniqueFd connection = net::accept_from(listener_.get());
  if (!connection) return;
  const net::PeerCredentials peer = net::peer_credentials(connection.get());
  if (peer.user != ::geteuid() && peer.user != 0) {
    node_.options().logger->warn("the store refused process {} of user {}", peer.process, peer.user);
    return;
  }
  add(net::make_socket_stream(std::move(connection), fmt::format("process {}", peer.process)), Kind::kClient);
}

void Server::add(std::unique_ptr<net::Stream> stream, Kind kind) {
  std::list<Connection> over;
  {
    const MutexLock lock(mutex_);
    for (auto it = connections_.begin(); it != connections_.end();) {
      const auto next = std::next(it);
      if (!it->stream) over.splice(over.begin(), connections_, it);
      it = next;
    }
    const bool serves = connections_.size() < most_connections_ || close_one();
    if (!ending_ && connections_.size() < most_connections_ + kMostRefused) {
      Connection& connection = connections_.emplace_back();
      connection.stream = std::move(stream);
      try {
        connection.thread = start_thread("serving a connection of a store", [this, &connection, kind, serves] {
          if (serves) {
            serve(connection, kind);
          } else {
            refuse(*connection.stream);
          }
          const MutexLock again(mutex_);
          connection.stream.reset();  // Its descriptor is needed now: the next connection may be waiting for one.
        });
      } catch (const Error&) {
        connections_.pop_back();
        throw;
      }
    }
  }
  for (Connection& connection : over) connection.thread.join();
}

bool Server::make_room() {
  const MutexLock lock(mutex_);
  return close_one();
}

bool Server::close_one() {
  for (Connection& connection : connections_) {
    // A client that is about to ask finds the connection closed, and opens another one.
    if (!connection.rests.exchange(false)) continue;
    ::shutdown(connection.stream->fd(), SHUT_RDWR);
    return true;
  }
  return false;
}

void Server::refuse(net::Stream& stream) const {
  node_.options().logger->warn("the store has {} connections, and refuses one of {}", most_connections_, stream.peer());
  try {
    // An answer to what was asked: the end of the connection alone would look like that of this process.
    static_cast<void>(net::receive_message(stream, Deadline::after(kRefusalLimit)));
    ByteWriter connections;
    connections.u32(static_cast<std::uint32_t>(most_connections_));
    net::send_message(stream, message_type::kBusy, connections.result(), Deadline::after(kRefusalLimit));
  } catch (const Error& error) {
    node_.options().logger->debug("{} did not wait for its refusal: {}", stream.peer(), error.what());
  }
  ::shutdown(stream.fd(), SHUT_RDWR);
}

void Server::serve(Connection& connection, Kind kind) {
  net::Stream& stream = *connection.stream;
  Bytes buffer;
  try {
    for (;;) {
      const net::Message request = net::receive_message(stream, Deadline::never());
      connection.rests = false;
      answer(stream, kind, request.type, request.payload, buffer);
      connection.rests = true;
    }
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kPeerLost) {
      node_.options().logger->warn("the store ends the connection of {}: {}", stream.peer(), error.what());
    }
  }
  ::shutdown(stream.fd(), SHUT_RDWR);
}

void Server::answer(net::Stream& stream, Kind kind, std::uint16_t type, const Bytes& payload, Bytes& buffer) {
  if (type == message_type::kRead) {
    answer_read(stream, kind, payload, buffer);
  } else if (type == message_type::kSetMembers) {
    if (kind == Kind::kClient) {
      node_.change_members(Members::decode(payload));
    } else {
      node_.learn_members(Members::decode(payload));
    }
    net::send_message(stream, message_type::kMembers, node_.membership().now()->encode(), send_deadline());
  } else if (type == message_type::kGetMembers) {
    net::send_message(stream, message_type::kMembers, node_.membership().now()->encode(), send_deadline());
  } else if (type == message_type::kGetCatalog && kind == Kind::kClient) {
    send_catalog(stream);
  } else if (type == message_type::kGetSecret && kind == Kind::kClient) {
    const ChunkSecret* const secret = node_.folder().secret();
    const auto bytes = secret != nullptr ? std::span<const std::byte>(secret->secret()) : std::span<const std::byte>();
    net::send_message(stream, message_type::kSecret, bytes, send_deadline());
  } else if (type == message_type::kGetStatus && kind == Kind::kClient) {
    net::send_message(stream, message_type::kStatus, as_bytes(node_.status()), send_deadline());
  } else {
    throw Error(ErrorCode::kProtocol, fmt::format("it sent a message of the unknown type {}", type));
  }
}

void Server::answer_read(net::Stream& stream, Kind kind, const Bytes& payload, Bytes& buffer) {
  const ReadRequest request = ReadRequest::decode(payload);
  if (request.fingerprint != node_.catalog().fingerprint()) {
    const Error other(ErrorCode::kMismatch, "the store holds another data set now, or another version of it");
    net::send_message(stream, message_type::kFailure, encode_failure(other), send_deadline());
    return;
  }
  const Piece chunk = node_.catalog().chunk(request.entry, request.chunk);
  if (request.size_bytes > kMostReadBytes || request.offset_bytes > chunk.size_bytes ||
      request.size_bytes > chunk.size_bytes - request.offset_bytes) {
    throw Error(ErrorCode::kProtocol, "it asked for bytes that there are not");
  }
  buffer.resize(kBufferBytes);
  bool announced = false;
  // With the first bytes, so that the reader wakes up once for both.
  const auto announce = [&](std::uint16_t type, std::uint32_t size_bytes, std::span<const std::byte> first) {
    const DataReply reply{.members = node_.membership().stamp(), .size_bytes = size_bytes};
    Bytes message = net::encode_message(type, reply.encode());
    message.insert(message.end(), first.begin(), first.end());
    net::write_exactly(stream, message, send_deadline());
    announced = true;
  };
  const WaitingReader reader{
      .still_waiting =
          [&] {
            if (!announced) net::send_message(stream, message_type::kPatience, {}, send_deadline());
          },
      .arrived =
          [&](std::span<const std::byte> bytes) {
            if (!announced) {
              const auto first = bytes.first(std::min(bytes.size(), kWithAnnouncement));
              announce(message_type::kData, request.size_bytes, first);
              bytes = bytes.subspan(first.size());
            }
            if (!bytes.empty()) net::write_exactly(stream, bytes, send_deadline());
          },
  };
  Reading reading(request.offset_bytes, request.size_bytes, buffer, reader);
  bool found = true;
  try {
    if (kind == Kind::kClient) {
      node_.read(chunk, reading);
    } else {
      found = node_.serve(chunk, reading, request.only_if_present);
    }
  } catch (const ReaderGone&) {
    throw;
  } catch (const Error& error) {
    if (announced) throw;  // Only the connection's end can say so now.
    net::send_message(stream, message_type::kFailure, encode_failure(error), send_deadline());
    return;
  }
  if (!found && announced) throw Error(ErrorCode::kIo, "a chunk that it reads is damaged");
  if (!announced) announce(found ? message_type::kData : message_type::kAbsent, 0, {});
}

void Server::send_catalog(net::Stream& stream) {
  const Bytes catalog = node_.catalog().encode();
  std::span<const std::byte> left(catalog);
  while (!left.empty()) {
    const auto part = left.first(std::min(kCatalogPartBytes, left.size()));
    net::send_message(stream, message_type::kCatalogPart, part, send_deadline());
    left = left.subspan(part.size());
  }
  net::send_message(stream, message_type::kCatalogPart, {}, send_deadline());
}

}  // namespace gyre::store::node
