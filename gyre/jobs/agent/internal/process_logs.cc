#include "gyre/jobs/agent/internal/process_logs.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"

namespace gyre::jobs::agent::internal {

std::uint64_t length_of(const std::filesystem::path& path) {
  struct stat status{};
  return ::stat(path.c_str(), &status) == 0 ? static_cast<std::uint64_t>(status.st_size) : 0;
}

LogStream::LogStream(std::filesystem::path path, std::uint64_t begins_at, const std::vector<std::string>& secrets)
    : path_(std::move(path)), redactor_(secrets) {
  const std::uint64_t length = length_of(path_);
  skip_ = length - std::min(length, begins_at);
  // Not through a link: the folder belongs to the job's user.
  file_ = UniqueFd(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY, 0644));
  if (!file_) throw system_error(fmt::format("cannot write the log {}", path_.string()), errno);
}

void LogStream::write(std::string_view bytes) { append(redactor_.pass(bytes)); }
void LogStream::finish() { append(redactor_.finish()); }

void LogStream::append(std::string_view bytes) {
  const std::uint64_t skipped = std::min<std::uint64_t>(skip_, bytes.size());
  skip_ -= skipped;
  bytes.remove_prefix(skipped);
  if (!bytes.empty()) write_all(file_.get(), as_bytes(bytes), path_.string());
}

}  // namespace gyre::jobs::agent::internal
