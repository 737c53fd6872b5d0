#include "gyre/launch/host.h"

#include <fmt/format.h>
#include <limits.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <string_view>
#include <thread>

#include "gyre/base/bytes.h"
#include "gyre/base/cgroup.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"

namespace gyre::launch {

namespace {

/// Two pipes, a pidfd and a log file for each rank, and some for ourselves.
std::uint64_t open_files_needed(int ranks) { return std::uint64_t{4} * static_cast<std::uint64_t>(ranks) + 64; }

}  // namespace

std::string host_name() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  return name.data();
}

std::optional<std::int64_t> out_of_memory_kills() {
  try {
    constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 20;
    constexpr std::string_view kName = "\noom_kill ";
    const Bytes bytes = read_file("/proc/vmstat", kMostBytes);
    const std::string_view text = as_text(bytes);
    const std::size_t at = text.find(kName);
    if (at == std::string_view::npos) return std::nullopt;
    std::int64_t count = 0;
    const auto result = std::from_chars(text.data() + at + kName.size(), text.data() + text.size(), count);
    if (result.ec != std::errc()) return std::nullopt;
    return count;
  } catch (const Error&) {
    return std::nullopt;  // Only evidence for a report; without it the report says less.
  }
}

std::int64_t kills_in_own_cgroup() {
  const auto cgroups = cgroups_of(::getpid(), CgroupController::kMemory);
  return cgroups.empty() ? 0 : memory_kills(cgroups.front());
}

std::optional<std::uint64_t> own_memory_limit() {
  return memory_limit(cgroups_of(::getpid(), CgroupController::kMemory));
}

void ensure_open_files(int ranks) {
  const std::uint64_t needed = open_files_needed(ranks);
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) throw system_error("cannot read the limit of open files", errno);
  if (limit.rlim_cur >= needed) return;
  if (limit.rlim_max < needed) {
    throw Error(ErrorCode::kResourceExhausted,
                fmt::format("{} open files are needed for this many ranks, but this host allows {}; raise it with "
                            "`ulimit -Hn {}` or start fewer ranks",
                            needed, limit.rlim_max, needed));
  }
  limit.rlim_cur = needed;
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) throw system_error("cannot raise the limit of open files", errno);
}

ReservedPort reserve_port() {
  ReservedPort reserved;
  reserved.socket = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  socklen_t length = sizeof(address);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  // Bound but not listening: who binds it too, with SO_REUSEADDR as servers do, may listen.
  if (!reserved.socket || ::setsockopt(reserved.socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
      ::bind(reserved.socket.get(), any, length) != 0 || ::getsockname(reserved.socket.get(), any, &length) != 0) {
    throw system_error("cannot find a free port", errno);
  }
  reserved.port = ntohs(address.sin_port);
  return reserved;
}

}  // namespace gyre::launch
