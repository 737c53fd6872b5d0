#include "gyre/store/sources/wait_notice.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <utility>

namespace gyre::store {

namespace {

constexpr std::chrono::seconds kBetweenLines{60};

}  // namespace

void WaitNotice::waits(const std::string& what) {
  const MutexLock lock(mutex_);
  const auto now = SteadyClock::now();
  if (last_ && now - *last_ < kBetweenLines) return;
  last_ = now;
  say_(what);
}

WaitNotice::Say say_on_stderr(std::string program) {
  // A progress bar may stand in the line.
  const char* const begin = ::isatty(STDERR_FILENO) != 0 ? "\r\x1b[K" : "";
  return [program = std::move(program), begin](const std::string& what) {
    fmt::print(stderr, "{}{}: {}\n", begin, program, what);
  };
}

}  // namespace gyre::store
