#include "gyre/net/async/event_loop.h"

#include <csignal>

#include "gyre/base/thread.h"

namespace gyre::net {
namespace {

/// While it lives, signals go to the program's other threads. A thread inherits that from the one that starts it.
class WithoutSignals {
 public:
  WithoutSignals() {
    sigset_t all;
    sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~WithoutSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  WithoutSignals(const WithoutSignals&) = delete;
  WithoutSignals& operator=(const WithoutSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

EventLoop::EventLoop() : work_(context_.get_executor()) {
  const WithoutSignals during_the_start;
  thread_ = start_thread("a rank's connections", [this] { context_.run(); });
}

EventLoop::~EventLoop() { stop(); }

void EventLoop::stop() {
  context_.stop();
  if (thread_.joinable()) thread_.join();
}

}  // namespace gyre::net
