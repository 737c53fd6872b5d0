#include "gyre/net/http/internal/worker_pool.h"

#include <utility>

#include "gyre/base/thread.h"

namespace gyre::net::http::internal {

WorkerPool::WorkerPool(std::size_t threads, std::size_t most_waiting) : most_waiting_(most_waiting) {
  try {
    for (std::size_t i = 0; i < threads; ++i) {
      threads_.push_back(start_thread("a server's handlers", [this] { run(); }));
    }
  } catch (...) {
    stop();
    throw;
  }
}

WorkerPool::~WorkerPool() { stop(); }

bool WorkerPool::submit(std::function<void()> work) {
  const MutexLock lock(mutex_);
  if (stopped_ || waiting_.size() >= most_waiting_) return false;
  waiting_.push_back(std::move(work));
  changed_.notify_one();
  return true;
}

void WorkerPool::stop() {
  std::deque<std::function<void()>> dropped;
  {
    const MutexLock lock(mutex_);
    stopped_ = true;
    dropped.swap(waiting_);
    changed_.notify_all();
  }
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void WorkerPool::run() {
  for (;;) {
    std::function<void()> work;
    {
      MutexLock lock(mutex_);
      while (waiting_.empty() && !stopped_) changed_.wait(mutex_);
      if (stopped_) return;
      work = std::move(waiting_.front());
      waiting_.pop_front();
    }
    work();
  }
}

}  // namespace gyre::net::http::internal
