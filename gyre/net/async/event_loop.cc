#include "gyre/net/async/event_loop.h"

#include <csignal>
#include <functional>

namespace gyre::net {
namespace {

std::thread start_without_signals(const std::function<void()>& body) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(body);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace

EventLoop::EventLoop() : work_(context_.get_executor()) {
  thread_ = start_without_signals([this] { context_.run(); });
}

EventLoop::~EventLoop() { stop(); }

void EventLoop::stop() {
  context_.stop();
  if (thread_.joinable()) thread_.join();
}

}  // namespace gyre::net
