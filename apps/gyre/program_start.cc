#include "apps/gyre/program_start.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <string>

#include "gyre/base/error.h"

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

void keep_inherited_descriptors_here() {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename().string());
    // EBADF: the one of this loop itself may have been closed and listed all the same.
    if (fd > STDERR_FILENO && ::fcntl(fd, F_SETFD, FD_CLOEXEC) != 0 && errno != EBADF) {
      throw system_error("cannot keep an inherited descriptor from other programs", errno);
    }
  }
}

std::vector<std::string> own_environment() {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry != nullptr; ++entry) entries.emplace_back(*entry);
  return entries;
}

std::map<std::string, std::string> by_name(const std::vector<std::string>& environment) {
  std::map<std::string, std::string> variables;
  for (const std::string& entry : environment) {
    const std::size_t equals = entry.find('=');
    if (equals != std::string::npos) variables[entry.substr(0, equals)] = entry.substr(equals + 1);
  }
  return variables;
}

void print_failure(const std::string& where, const std::string& message) {
  std::fputs((where + ": " + message + "\n").c_str(), stderr);
}

int usage_failure(const std::string& where, const std::string& message) {
  print_failure(where, fmt::format("{}\nSee `{} --help`.", message, where));
  return kUsageExitCode;
}

}  // namespace gyre::app
