#include "gyre/net/async/event_loop.h"

#include "gyre/base/thread.h"

namespace gyre::net {
EventLoop::EventLoop() : work_(context_.get_executor()) {
  thread_ = start_thread("a rank's connections", [this] { context_.run(); });
}

EventLoop::~EventLoop() { stop(); }

void EventLoop::stop() {
  context_.stop();
  if (thread_.joinable()) thread_.join();
}

}  // namespace gyre::net
