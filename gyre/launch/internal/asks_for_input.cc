#include "gyre/launch/internal/asks_for_input.h"

#include <fmt/format.h>
#include <sys/syscall.h>

#include <cstddef>
#include <filesystem>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/base/process_stat.h"

namespace gyre::launch {

namespace {

/// A look costs a few microseconds for each thread.
constexpr std::size_t kMostProcesses = 256;
constexpr std::size_t kMostThreads = 256;
constexpr std::uint64_t kMostBytes = std::uint64_t{64} << 10;

Asks asks(const std::filesystem::path& thread) {
  try {
    const Bytes bytes = read_file(thread / "syscall", kMostBytes);
    return as_text(bytes).starts_with(fmt::format("{} 0x0 ", SYS_read)) ? Asks::kYes : Asks::kNo;
  } catch (const Error&) {
    std::error_code none;
    return std::filesystem::exists(thread, none) ? Asks::kUnknown : Asks::kNo;  // It may have ended meanwhile.
  }
}

void add_children(const std::filesystem::path& thread, std::vector<pid_t>& processes) {
  try {
    std::istringstream children{std::string(as_text(read_file(thread / "children", kMostBytes)))};
    for (pid_t child = 0; children >> child && processes.size() < kMostProcesses;) processes.push_back(child);
  } catch (const Error&) {  // A kernel without that file, or a process without a present: looked at alone.
  }
}

}  // namespace

Asks asks_for_input(pid_t process) {
  if (!proc_has_our_numbers()) return Asks::kUnknown;
  std::vector<pid_t> processes = {process};
  Asks answer = Asks::kNo;
  for (std::size_t i = 0; i < processes.size(); ++i) {
    std::error_code gone;
    std::size_t threads = 0;
    for (auto thread = std::filesystem::directory_iterator(fmt::format("/proc/{}/task", processes[i]), gone);
         !gone && thread != std::filesystem::directory_iterator() && threads < kMostThreads; thread.increment(gone)) {
      ++threads;
      const Asks of_thread = asks(thread->path());
      if (of_thread == Asks::kYes) return Asks::kYes;
      if (of_thread == Asks::kUnknown) answer = Asks::kUnknown;
      add_children(thread->path(), processes);
    }
  }
  return answer;
}

}  // namespace gyre::launch
