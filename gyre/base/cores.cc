#include "gyre/base/cores.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "gyre/base/cgroup.h"

namespace gyre {

int usable_cores() {
  cpu_set_t set;
  const bool known = ::sched_getaffinity(0, sizeof set, &set) == 0;  // Not with more than 1024 cores.
  const int cores = known ? CPU_COUNT(&set) : static_cast<int>(std::thread::hardware_concurrency());
  return std::max(1, std::min(cores, core_limit(cgroups_of(::getpid(), CgroupController::kCpu)).value_or(cores)));
}

}  // namespace gyre
