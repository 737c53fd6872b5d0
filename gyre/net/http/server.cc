#include "gyre/net/http/server.h"

#include <fmt/format.h>
#include <poll.h>
#include <spdlog/logger.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <utility>

#include "gyre/net/async/event_loop.h"
#include "gyre/net/http/internal/connection.h"
#include "gyre/net/http/internal/listener.h"
#include "gyre/net/socket.h"

namespace gyre::net::http {
namespace {

using internal::Connection;
using internal::ServerState;
using Listener = asio::posix::stream_descriptor;

/// After the process has run out of descriptors: time for others to close some.
constexpr std::chrono::milliseconds kPauseWithoutDescriptors{100};
/// And this part of the idle connections is closed, the longest idle ones.
constexpr std::size_t kShareOfIdle = 8;

/// The socket file of a server, which is removed with it unless another server has put its own there.
class SocketFile {
 public:
  explicit SocketFile(std::string path) : path_(std::move(path)), inode_(inode_now()) {}
  ~SocketFile() {
    if (inode_ && inode_now() == inode_) ::unlink(path_.c_str());
  }
  SocketFile(const SocketFile&) = delete;
  SocketFile& operator=(const SocketFile&) = delete;

 private:
  std::optional<ino_t> inode_now() const {
    struct stat status{};
    return ::lstat(path_.c_str(), &status) == 0 ? std::optional(status.st_ino) : std::nullopt;
  }

  std::string path_;
  std::optional<ino_t> inode_;
};

void admit(const std::shared_ptr<ServerState>& state, UniqueFd socket) {
  if (state->connections.size() >= state->options.limits.connections) {
    if (state->idle.empty()) {
      state->log_refusal(describe_peer(socket.get()), "there are too many connections");
      return;
    }
    state->idle.front()->close();
  }
  auto connection = std::make_shared<Connection>(state, std::move(socket));
  connection->place = state->connections.insert(state->connections.end(), connection);
  connection->begin_as_stranger();
  asio::co_spawn(state->context, [connection] { return connection->serve(); }, asio::detached);
}

void take_waiting(const std::shared_ptr<ServerState>& state, int listening_socket) {
  for (UniqueFd socket = accept_from(listening_socket); socket; socket = accept_from(listening_socket)) {
    if (!internal::may_connect(socket.get())) {
      state->log_refusal(describe_peer(socket.get()), "this server is another user's");
      continue;
    }
    try {
      admit(state, std::move(socket));
    } catch (const Error& error) {  // Gone already.
      state->options.logger->debug("{} lost a new connection: {}", state->options.what, error.what());
    }
  }
}

bool somebody_waits(int listening_socket) {
  pollfd entry{listening_socket, POLLIN, 0};
  return ::poll(&entry, 1, 0) > 0;
}

asio::awaitable<void> accept(std::shared_ptr<ServerState> state, std::shared_ptr<Listener> listener) {
  asio::steady_timer pause(state->context);
  while (!state->stopping) {
    boost::system::error_code failure;
    co_await listener->async_wait(Listener::wait_read, asio::redirect_error(asio::use_awaitable, failure));
    if (failure) co_return;  // stop()
    bool exhausted = false;
    try {
      take_waiting(state, listener->native_handle());
    } catch (const Error& error) {
      // Without descriptors the system says so also when nobody waits.
      exhausted = somebody_waits(listener->native_handle());
      if (exhausted) state->log_refusal("somebody", error.what());
    }
    if (!exhausted) continue;
    // Idle connections must not keep others out, nor must one at a time make them wait.
    if (!state->idle.empty()) {
      for (std::size_t closing = 1 + state->idle.size() / kShareOfIdle; closing > 0; --closing) {
        state->idle.front()->close();
      }
      continue;
    }
    pause.expires_after(kPauseWithoutDescriptors);
    co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, failure));
  }
}

}  // namespace

class Server::Impl {
 public:
  Impl(ServerOptions options, Router router)
      : state_(std::make_shared<ServerState>(loop_.context(), std::move(options), std::move(router))) {
    std::vector<UniqueFd> sockets;
    for (const Endpoint& endpoint : state_->options.endpoints) {
      sockets.push_back(
          internal::listen_privately(endpoint, state_->options.socket_mode, state_->options.certificate.has_value()));
      endpoints_.push_back(local_endpoint(sockets.back().get()));
      if (endpoint.kind == Endpoint::Kind::kUnix && !endpoint.host.starts_with('@')) {
        files_.push_back(std::make_unique<SocketFile>(endpoint.host));
      }
    }
    state_->door->post([this, listeners = make_listeners(std::move(sockets))] {
      listeners_ = listeners;
      for (const auto& listener : listeners_) {
        asio::co_spawn(state_->context, accept(state_, listener), asio::detached);
      }
    });
  }

  ~Impl() { stop(std::chrono::milliseconds(0)); }

  const std::vector<Endpoint>& endpoints() const { return endpoints_; }

  void stop(std::chrono::milliseconds grace) {
    const MutexLock one_at_a_time(stop_mutex_);
    if (std::exchange(stopped_, true)) return;
    state_->door->post([this] { begin_stop(); });
    wait_until_empty(Deadline::after(grace));
    state_->door->post([this] {
      for (const auto& connection : state_->connections) connection->close();
    });
    wait_until_empty(Deadline::never());
    state_->door->close();
    loop_.stop();
    state_->pool.stop();
    state_->connection_ended = [] {};
  }

 private:
  std::vector<std::shared_ptr<Listener>> make_listeners(std::vector<UniqueFd> sockets) {
    std::vector<std::shared_ptr<Listener>> listeners;
    for (UniqueFd& socket : sockets) {
      listeners.push_back(std::make_shared<Listener>(loop_.context(), socket.release()));
    }
    return listeners;
  }

  /// On the loop's thread.
  void begin_stop() {
    state_->stopping = true;
    for (const auto& listener : listeners_) close_quietly(*listener);
    state_->connection_ended = [this] { note_if_empty(); };
    for (const auto& connection : state_->connections) connection->stop();
    note_if_empty();
  }

  /// On the loop's thread.
  void note_if_empty() {
    if (!state_->connections.empty()) return;
    const MutexLock lock(mutex_);
    empty_ = true;
    changed_.notify_all();
  }

  void wait_until_empty(Deadline deadline) {
    const MutexLock lock(mutex_);
    while (!empty_ && !deadline.passed()) {
      if (deadline.when()) {
        changed_.wait_until(mutex_, *deadline.when());
      } else {
        changed_.wait(mutex_);
      }
    }
  }

  EventLoop loop_;
  std::shared_ptr<ServerState> state_;
  std::vector<std::shared_ptr<Listener>> listeners_;
  std::vector<Endpoint> endpoints_;
  std::vector<std::unique_ptr<SocketFile>> files_;
  Mutex stop_mutex_;
  bool stopped_ GYRE_GUARDED_BY(stop_mutex_) = false;
  Mutex mutex_;
  ConditionVariable changed_;
  bool empty_ GYRE_GUARDED_BY(mutex_) = false;
};

Server::Server(ServerOptions options, Router router)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(router))) {}
Server::~Server() = default;
const std::vector<Endpoint>& Server::endpoints() const { return impl_->endpoints(); }
void Server::stop(std::chrono::milliseconds grace) { impl_->stop(grace); }

}  // namespace gyre::net::http
