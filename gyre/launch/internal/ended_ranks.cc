#include "gyre/launch/internal/ended_ranks.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "gyre/base/error.h"
#include "gyre/launch/host.h"

namespace gyre::launch {

EndedRanks::EndedRanks() : file_(::memfd_create("gyre-ended", MFD_CLOEXEC)) {
  if (!file_) throw system_error("cannot make a file for the ranks", errno);
  const std::string path = fmt::format("/proc/self/fd/{}", file_.get());
  for_ranks_ = UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!for_ranks_) throw system_error(fmt::format("cannot open {} for the ranks", path), errno);
}

std::string EndedRanks::note(int rank, int process) {
  std::string line = fmt::format("rank {} (host {}, pid {}) ended with exit code 0", rank, host_name(), process);
  write(line);
  return line;
}

void EndedRanks::hear(std::string_view text) {
  heard_.add(text, [this](std::string_view line, LineEnd end) {
    if (end == LineEnd::kNewline && line.starts_with("rank ")) write(std::string(line));
  });
}

void EndedRanks::write(const std::string& line) {
  const std::string whole = line + '\n';
  // Without it the ranks wait until their time is up; nobody is served by an error about that.
  [[maybe_unused]] const ssize_t written = ::write(file_.get(), whole.data(), whole.size());
}

}  // namespace gyre::launch
