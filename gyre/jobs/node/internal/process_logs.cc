#include "gyre/jobs/node/internal/process_logs.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"

namespace gyre::jobs::node::internal {

std::uint64_t length_of(const std::filesystem::path& path) {
  struct stat status{};
  return ::stat(path.c_str(), &status) == 0 ? static_cast<std::uint64_t>(status.st_size) : 0;
}

namespace {

UniqueFd open_log(const std::filesystem::path& path, Links links) {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK;
  constexpr mode_t kMode = 0644;
  if (links == Links::kFollowed) return UniqueFd(::open(path.c_str(), kFlags, kMode));
  open_how how{};
  how.flags = kFlags;
  how.mode = kMode;
  how.resolve = RESOLVE_NO_SYMLINKS;
  return UniqueFd(static_cast<int>(::syscall(SYS_openat2, AT_FDCWD, path.c_str(), &how, sizeof how)));
}

}  // namespace

LogStream::LogStream(std::filesystem::path path, std::uint64_t begins_at, const std::vector<std::string>& secrets,
                     Links links)
    : path_(std::move(path)), file_(open_log(path_, links)), redactor_(secrets) {
  struct stat status{};
  if (!file_ || ::fstat(file_.get(), &status) != 0) {
    throw system_error(fmt::format("cannot write the log {}", path_.string()), errno);
  }
  if (!S_ISREG(status.st_mode)) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("cannot write the log {}: it is not a file", path_.string()));
  }
  const auto length = static_cast<std::uint64_t>(status.st_size);
  skip_ = length - std::min(length, begins_at);
}

void LogStream::write(std::string_view bytes) { append(redactor_.pass(bytes)); }
void LogStream::finish() { append(redactor_.finish()); }

void LogStream::append(std::string_view bytes) {
  const std::uint64_t skipped = std::min<std::uint64_t>(skip_, bytes.size());
  skip_ -= skipped;
  bytes.remove_prefix(skipped);
  if (!bytes.empty()) write_all(file_.get(), as_bytes(bytes), path_.string());
}

}  // namespace gyre::jobs::node::internal
