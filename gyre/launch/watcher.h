#pragma once

#include <sys/types.h>

#include <string>

#include "gyre/launch/rank_set.h"

namespace gyre::launch {

/// Hears what becomes of a job that run_on_console() or run_on_hosts() runs, for somebody who shows it to people.
/// Called on the launcher's thread: nothing may wait, nothing may throw.
class JobWatcher {
 public:
  virtual ~JobWatcher() = default;
  /// Before any rank starts: how far the staging of its data has come, or (`is_done`) what it has brought.
  virtual void preparing(const std::string& /*text*/, bool /*is_done*/) {}
  /// `process`: 0 where its host has not told. `role`: as ROLE_NAME. `host`: by the name that the job was given; empty:
  /// the launcher's.
  virtual void started(int rank, pid_t process, const std::string& role, const std::string& host) = 0;
  virtual void ended(const ExitRecord& record) = 0;
  /// After ended(): the others go on without it.
  virtual void lost(const ExitRecord& record) = 0;
  /// The cause, when ranks failed on their own; after the end of all. `report`: the closing block, as it is printed.
  virtual void failed(int rank, const std::string& report) = 0;
  /// All ranks have been asked to end, by a signal to the launcher.
  virtual void stopping(int signal) = 0;
  /// All ranks are started again, for the `number`th time.
  virtual void restarting(int number) = 0;
};

}  // namespace gyre::launch
