#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "gyre/base/file.h"

namespace gyre::launch {

/// A small process that outlives its launcher if that is killed: it then kills the launcher's process groups, and every
/// process that carries the job's marker. It has its own session, holds nothing of ours open, ignores signals, and is
/// named so that no `pkill gyre` finds it. Ends when the launcher does. Not thread-safe.
class Guardian {
 public:
  /// Forks it. `marker`: see kill_marked_processes(). Error(kIo, kResourceExhausted).
  explicit Guardian(const std::string& marker);
  /// Without stand_down() this counts as the launcher's end: everything is killed before it returns.
  ~Guardian();
  Guardian(const Guardian&) = delete;
  Guardian& operator=(const Guardian&) = delete;

  /// From now on this process group dies with the launcher.
  void watch(pid_t group);
  /// The launcher has cleaned up itself: the guardian ends without touching anything.
  void stand_down();

 private:
  void send(std::int32_t message);

  UniqueFd socket_;
  pid_t pid_ = -1;
};

}  // namespace gyre::launch
