#include "gyre/group/internal/rendezvous/process_watch.h"

#include <sys/syscall.h>
#include <unistd.h>

namespace gyre::group {

UniqueFd watch_process(const Member& self, const Member& other) {
  if (other.host_id != self.host_id || other.process_namespace == 0) return {};
  if (other.process_namespace != self.process_namespace) return {};
  if (other.process <= 0 || other.process == self.process) return {};
  // Fails on kernels before 5.3 and for processes that are gone; the connection's end serves then.
  return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, other.process, 0)));
}

}  // namespace gyre::group
