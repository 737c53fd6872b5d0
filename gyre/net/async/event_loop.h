#pragma once

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <thread>

#include "gyre/net/async/async_io.h"

namespace gyre::net {

/// A thread that runs the handlers and coroutines of one io_context until stop(). It gets no signals: they belong to
/// the program's own threads. Idle it sleeps in epoll_wait.
class EventLoop {
 public:
  /// Error(kResourceExhausted) when the system gives no thread.
  EventLoop();
  /// stop()
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  /// Handlers posted here run on the loop's thread. Posting is thread-safe. It outlives the thread, and sockets and
  /// timers made from it must not outlive it.
  asio::io_context& context() { return context_; }

  /// Waits for the handler that runs now, drops the others and ends the thread. Idempotent; not for the loop's thread.
  void stop();

 private:
  asio::io_context context_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  std::thread thread_;
};

}  // namespace gyre::net
