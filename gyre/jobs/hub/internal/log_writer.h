#pragma once

#include <deque>
#include <functional>
#include <thread>

#include "gyre/base/thread_annotations.h"
#include "gyre/jobs/hub/log_store.h"

namespace gyre::jobs::hub::internal {

/// The thread that writes logs, so that a slow disk holds up no lease. What waits for it is bounded by the windows of
/// the nodes' connections.
class LogWriter {
 public:
  using Task = std::function<void(LogStore&)>;

  explicit LogWriter(const LogStoreOptions& options);
  /// Leaves undone what has not begun: nodes send it again.
  ~LogWriter();
  LogWriter(const LogWriter&) = delete;
  LogWriter& operator=(const LogWriter&) = delete;

  /// In this order. Tasks throw nothing.
  void post(Task task);

 private:
  void run();

  LogStore store_;
  Mutex mutex_;
  ConditionVariable changed_;
  std::deque<Task> tasks_ GYRE_GUARDED_BY(mutex_);
  bool over_ GYRE_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace gyre::jobs::hub::internal
