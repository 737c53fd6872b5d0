#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "gyre/base/file.h"
#include "gyre/group/messages/internal/mail_segment.h"
#include "gyre/group/topology.h"

namespace gyre::group::internal {

/// What another rank's process holds, read with process_vm_readv(2): one copy, and the other rank need not do anything.
/// The system refuses it between users, in some containers, and where kernel.yama.ptrace_scope is 1 or more. A process
/// number means something only within its namespace and while that process lives: both are checked, and so is what the
/// peer says lies in its memory.
/// One thread at a time, but for read().
class PeerMemory {
 public:
  PeerMemory(const Member& self, const Member& peer);

  /// Whether it can be read, found out once by reading what `desk` names. The peer must have filled its desk.
  bool readable(const Desk& desk);
  /// False where the system refuses: the process has ended, or nothing that can be read lies there.
  bool read(std::span<std::byte> into, std::uint64_t address) const;

 private:
  bool is_alive() const;

  pid_t process_;   // 0: a number that means nothing here.
  UniqueFd pidfd_;  // Of the process that has that number; nobody else gets it while that one lives.
  std::optional<bool> readable_;
};

}  // namespace gyre::group::internal
