#include "apps/gyre/program_start.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

extern char** environ;

namespace gyre::app {

void ensure_standard_descriptors() {
  for (;;) {
    const int fd = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    if (fd < 0) return;
    if (fd > STDERR_FILENO) {
      ::close(fd);
      return;
    }
  }
}

std::vector<std::string> own_environment() {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry != nullptr; ++entry) entries.emplace_back(*entry);
  return entries;
}

int usage_failure(const std::string& where, const std::string& message) {
  fmt::print(stderr, "{}: {}\nSee `{} --help`.\n", where, message, where);
  return kUsageExitCode;
}

}  // namespace gyre::app
