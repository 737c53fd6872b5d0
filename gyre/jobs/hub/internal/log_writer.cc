#include "gyre/jobs/hub/internal/log_writer.h"

#include <utility>

#include "gyre/base/thread.h"

namespace gyre::jobs::hub::internal {

LogWriter::LogWriter(const LogStoreOptions& options) : store_(options) {
  thread_ = start_thread("logs of jobs", [this] { run(); });
}

LogWriter::~LogWriter() {
  {
    const MutexLock lock(mutex_);
    over_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void LogWriter::post(Task task) {
  const MutexLock lock(mutex_);
  tasks_.push_back(std::move(task));
  changed_.notify_all();
}

void LogWriter::run() {
  for (;;) {
    Task task;
    {
      const MutexLock lock(mutex_);
      while (tasks_.empty() && !over_) changed_.wait(mutex_);
      if (over_) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task(store_);
  }
}

}  // namespace gyre::jobs::hub::internal
