#include "apps/gyre/file_limit.h"

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>

#include "gyre/base/error.h"

namespace gyre::app {

std::size_t raise_file_limit() {
  constexpr rlim_t kEnough = 65'536;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) throw system_error("cannot read the limit of open files", errno);
  const rlim_t wanted = std::max(limit.rlim_cur, std::min(limit.rlim_max, kEnough));
  if (const rlimit raised{wanted, limit.rlim_max}; ::setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  return static_cast<std::size_t>(std::min(limit.rlim_cur, kEnough));
}

}  // namespace gyre::app
