#include "gyre/base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>

#include "gyre/base/error.h"
#include "gyre/base/random.h"

namespace gyre {

void UniqueFd::reset() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

Bytes read_file(const std::filesystem::path& path, std::uint64_t limit_bytes) {
  const std::string what = fmt::format("cannot read {}", path.string());
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) throw system_error(what, errno);
  Bytes result;
  constexpr std::size_t kLeastStep = std::size_t{16} << 10;
  for (;;) {
    const std::size_t used = result.size();
    struct stat status{};
    if (used == 0 && ::fstat(fd.get(), &status) == 0 && S_ISREG(status.st_mode)) {
      if (static_cast<std::uint64_t>(status.st_size) > limit_bytes) break;
      result.resize(static_cast<std::size_t>(status.st_size) + 1);  // One more, to see the end at once.
    } else {
      result.resize(used + std::max(used, kLeastStep));
    }
    const ssize_t count = ::read(fd.get(), result.data() + used, result.size() - used);
    if (count < 0 && errno != EINTR) throw system_error(what, errno);
    result.resize(used + static_cast<std::size_t>(count < 0 ? 0 : count));
    if (count == 0) return result;
    if (result.size() > limit_bytes) break;
  }
  throw Error(ErrorCode::kResourceExhausted, fmt::format("{}: larger than {}", what, format_bytes(limit_bytes)));
}

void write_all(int fd, std::span<const std::byte> bytes, std::string_view what) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(fd, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw system_error(what, errno);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

namespace {

/// Not a process number: two processes that write to one folder have the same one in PID namespaces of their own.
std::string unique_suffix() {
  std::array<std::byte, 8> random;
  fill_with_secure_random(random);
  std::string text;
  for (const std::byte value : random) text += fmt::format("{:02x}", std::to_integer<int>(value));
  return text;
}

void sync_or_throw(int fd, const std::string& what) {
  if (::fsync(fd) != 0) throw system_error(what, errno);
}

}  // namespace

void write_file_atomically(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  const std::string what = fmt::format("cannot write {}", path.string());
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  const std::filesystem::path temporary = path.string() + fmt::format(".{}.tmp", unique_suffix());
  const UniqueFd folder_fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder_fd) throw system_error(what, errno);
  try {
    const UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (!fd) throw system_error(what, errno);
    write_all(fd.get(), bytes, what);
    sync_or_throw(fd.get(), what);
    if (::rename(temporary.c_str(), path.c_str()) != 0) throw system_error(what, errno);
  } catch (const Error&) {
    ::unlink(temporary.c_str());
    throw;
  }
  sync_or_throw(folder_fd.get(), what);
}

}  // namespace gyre
