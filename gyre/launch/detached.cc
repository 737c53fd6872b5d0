#include "gyre/launch/detached.h"

#include <unistd.h>

#include "gyre/launch/internal/detached_run.h"

namespace gyre::launch {

int run_detached(const LaunchSpec& spec) {
  // No signal of the terminal and no hang-up of the parent's session reaches us. A group's leader cannot leave it; it
  // is one of its own then.
  ::setsid();
  ensure_open_files(static_cast<int>(spec.ranks.ranks.size()));
  return DetachedRun(spec).run();
}

}  // namespace gyre::launch
