#pragma once

#include <sys/types.h>

#include "gyre/base/clock.h"

namespace gyre::jobs::node::internal {

/// Kills the process that traces this one, where it is another than ourselves. Without effect where /proc has other
/// numbers than we have.
void kill_tracer(pid_t process);

/// Looks every few seconds at a process that works for a job, and which the job can stop, as its account can: whatever
/// waits for it would wait for ever, and the node would be lost to others. Not thread-safe.
class StoppedProcess {
 public:
  /// When to look again.
  Deadline next() const { return next_; }
  /// Continues the process where this look and the last one have found it stopped, and kills its tracer where it is
  /// that which stops it. Whether this happened, for the first time.
  bool look(pid_t process);

 private:
  static Deadline soon();

  Deadline next_ = soon();
  bool was_stopped_ = false;
  bool has_acted_ = false;
};

}  // namespace gyre::jobs::node::internal
