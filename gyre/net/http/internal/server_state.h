#pragma once

#include <boost/asio/ssl/context.hpp>
#include <list>
#include <map>
#include <memory>
#include <string>

#include "gyre/base/thread_annotations.h"
#include "gyre/net/async/async_io.h"
#include "gyre/net/http/internal/shares.h"
#include "gyre/net/http/internal/worker_pool.h"
#include "gyre/net/http/rate_limit.h"
#include "gyre/net/http/server.h"

namespace gyre::net::http::internal {

class Connection;

/// Runs something on the loop's thread for as long as there is a loop. Thread-safe.
class LoopDoor {
 public:
  explicit LoopDoor(asio::io_context& context) : context_(&context) {}
  void post(std::function<void()> work);
  /// From now on post() does nothing.
  void close();

 private:
  Mutex mutex_;
  asio::io_context* context_ GYRE_GUARDED_BY(mutex_);
};

/// What the connections of a server share. Only the loop's thread uses it, but for what is thread-safe by itself.
struct ServerState {
  ServerState(asio::io_context& loop, ServerOptions server_options, Router server_router);

  /// For refusals: logs a few a second and counts the others.
  void log_refusal(const std::string& peer, const std::string& what);

  asio::io_context& context;
  std::unique_ptr<asio::ssl::context> tls;  // Null: TCP is not encrypted.
  const ServerOptions options;
  const Router router;
  WorkerPool pool;
  std::shared_ptr<LoopDoor> door;
  RateLimiter requests;
  RateLimiter failed_logins;
  RateLimiter audited_refusals;  // By peer.
  std::uint64_t unaudited = 0;
  std::list<std::shared_ptr<Connection>> connections;
  std::list<Connection*> idle;  // Between two requests; the longest idle one first.
  Shares streams;               // By user.
  Shares bodies;
  std::map<std::string, std::list<Connection*>> strangers;  // By peer; the oldest first.
  bool stopping = false;
  std::function<void()> connection_ended = [] {};

 private:
  RateLimiter refusals_;
  std::uint64_t unlogged_refusals_ = 0;
};

}  // namespace gyre::net::http::internal
