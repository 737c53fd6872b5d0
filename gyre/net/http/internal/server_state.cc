#include "gyre/net/http/internal/server_state.h"

#include "gyre/net/http/internal/tls.h"

#include <spdlog/logger.h>
#include <boost/asio/post.hpp>
#include <utility>

namespace gyre::net::http::internal {
namespace {

constexpr Rate kLoggedRefusals{1, 20};
constexpr Rate kAuditedRefusals{1, 100};

}  // namespace

void LoopDoor::post(std::function<void()> work) {
  const MutexLock lock(mutex_);
  if (context_ != nullptr) asio::post(*context_, std::move(work));
}

void LoopDoor::close() {
  const MutexLock lock(mutex_);
  context_ = nullptr;
}

ServerState::ServerState(asio::io_context& loop, ServerOptions server_options, Router server_router)
    : context(loop),
      options(std::move(server_options)),
      router(std::move(server_router)),
      pool(options.limits.handler_threads, options.limits.waiting_handlers),
      door(std::make_shared<LoopDoor>(loop)),
      requests(options.limits.requests),
      failed_logins(options.limits.failed_logins),
      audited_refusals(kAuditedRefusals),
      refusals_(kLoggedRefusals) {
  if (options.certificate) {
    tls = std::make_unique<asio::ssl::context>(make_server_context(*options.certificate).release());
  }
}

void ServerState::log_refusal(const std::string& peer, const std::string& what) {
  if (!refusals_.take("", SteadyClock::now())) {
    ++unlogged_refusals_;
    return;
  }
  const std::uint64_t unlogged = std::exchange(unlogged_refusals_, 0);
  if (unlogged > 0) options.logger->warn("{} refused {} more requests", options.what, unlogged);
  options.logger->warn("{} refused a request from {}: {}", options.what, peer, what);
}

}  // namespace gyre::net::http::internal
