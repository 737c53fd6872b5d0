#pragma once

#include <functional>
#include <optional>
#include <string>

#include "gyre/base/clock.h"
#include "gyre/base/thread_annotations.h"

namespace gyre::store {

/// Says what readings wait for, once a minute at most, so that nobody watches a silent program. Thread-safe.
class WaitNotice {
 public:
  /// Called by the threads that read, one at a time.
  using Say = std::function<void(const std::string&)>;

  explicit WaitNotice(Say say) : say_(std::move(say)) {}

  void waits(const std::string& what) GYRE_EXCLUDES(mutex_);

 private:
  const Say say_;
  Mutex mutex_;
  std::optional<SteadyClock::time_point> last_ GYRE_GUARDED_BY(mutex_);
};

/// Writes a line to standard error, with `program` in front.
WaitNotice::Say say_on_stderr(std::string program);

}  // namespace gyre::store
