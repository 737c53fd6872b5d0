#pragma once

#include <deque>
#include <functional>
#include <string>
#include <thread>
#include <utility>

#include "gyre/base/thread.h"
#include "gyre/base/thread_annotations.h"

namespace gyre::jobs::hub::internal {

/// A thread that owns a `State` which reads and writes files, so that a slow disk holds up no lease. What waits for it
/// is bounded by the windows of the nodes' connections.
template <typename State>
class TaskThread {
 public:
  using Task = std::function<void(State&)>;

  /// `arguments`: of the state.
  template <typename... Arguments>
  explicit TaskThread(const std::string& name, Arguments&&... arguments)
      : state_(std::forward<Arguments>(arguments)...) {
    thread_ = start_thread(name, [this] { run(); });
  }
  /// Leaves undone what has not begun: nodes ask again.
  ~TaskThread() {
    {
      const MutexLock lock(mutex_);
      over_ = true;
      changed_.notify_all();
    }
    thread_.join();
  }
  TaskThread(const TaskThread&) = delete;
  TaskThread& operator=(const TaskThread&) = delete;

  /// In this order. Tasks throw nothing.
  void post(Task task) {
    const MutexLock lock(mutex_);
    tasks_.push_back(std::move(task));
    changed_.notify_all();
  }

 private:
  void run() {
    for (;;) {
      Task task;
      {
        const MutexLock lock(mutex_);
        while (tasks_.empty() && !over_) changed_.wait(mutex_);
        if (over_) return;
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      task(state_);
    }
  }

  State state_;
  Mutex mutex_;
  ConditionVariable changed_;
  std::deque<Task> tasks_ GYRE_GUARDED_BY(mutex_);
  bool over_ GYRE_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace gyre::jobs::hub::internal
