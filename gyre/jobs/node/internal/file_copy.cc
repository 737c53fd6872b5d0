#include "gyre/jobs/node/internal/file_copy.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "gyre/base/bytes.h"
#include "gyre/base/file.h"

namespace gyre::jobs::node::internal {

namespace {

constexpr std::size_t kCopiedAtOnce = std::size_t{16} << 20;
constexpr std::size_t kReadAtOnce = std::size_t{1} << 20;
constexpr mode_t kPermissions = 0777;  // No bit with which a program runs as another user.

class Copier {
 public:
  Copier(int from, int to, const Interruption& interruption) : from_(from), to_(to), interruption_(interruption) {}

  /// The first `size` bytes, with the holes in them. Throws std::system_error, or Interrupted.
  void copy(off_t size) {
    for (off_t begin = 0; begin < size;) {
      // Where the file system cannot tell its holes, all is data.
      const off_t data = ::lseek(from_, begin, SEEK_DATA);
      if (data < 0 && errno == ENXIO) return;  // A hole up to the end.
      const off_t hole = data < 0 ? -1 : ::lseek(from_, data, SEEK_HOLE);
      const off_t end = hole > data ? std::min(hole, size) : size;
      copy_range(std::max(data, begin), end);
      begin = end;
    }
  }

  struct Interrupted {
    std::string why;
  };

 private:
  [[noreturn]] static void fail() { throw std::system_error(errno, std::generic_category()); }

  void copy_range(off_t at, off_t end) {
    while (at < end) {
      if (std::string why = interruption_(); !why.empty()) throw Interrupted{std::move(why)};
      const ssize_t count = copy_some(at, static_cast<std::size_t>(end - at));
      if (count < 0 && errno != EINTR) fail();
      if (count == 0) return;  // It has become shorter.
      at += std::max<ssize_t>(count, 0);
    }
  }

  ssize_t copy_some(off_t at, std::size_t most) {
    if (kernel_copies_) {
      off_t in = at;
      off_t out = at;
      const ssize_t count = ::copy_file_range(from_, &in, to_, &out, std::min(most, kCopiedAtOnce), 0);
      const bool cannot = count < 0 && (errno == EXDEV || errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP);
      if (count != 0 && !cannot) return count;
      kernel_copies_ = false;  // Not between these two file systems; some say so by copying nothing.
    }
    buffer_.resize(kReadAtOnce);
    const ssize_t count = ::pread(from_, buffer_.data(), std::min(most, kReadAtOnce), at);
    return count <= 0 ? count : ::pwrite(to_, buffer_.data(), static_cast<std::size_t>(count), at);
  }

  int from_;
  int to_;
  const Interruption& interruption_;
  bool kernel_copies_ = true;
  Bytes buffer_;
};

bool is_same(const struct stat& a, const struct stat& b) {
  return a.st_size == b.st_size && a.st_mtim.tv_sec == b.st_mtim.tv_sec && a.st_mtim.tv_nsec == b.st_mtim.tv_nsec;
}

}  // namespace

std::string reason_of(int error_number) { return std::generic_category().message(error_number); }

CopyResult copy_file(int from, int to, const std::string& name, const Interruption& interruption) {
  CopyResult result;
  struct stat before{};
  UniqueFd file;
  if (::fstat(from, &before) == 0) {
    file = UniqueFd(::openat(to, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  }
  if (!file) return {.problem = reason_of(errno)};
  try {
    Copier(from, file.get(), interruption).copy(before.st_size);
    struct stat after{};
    if (::fstat(from, &after) != 0 || !is_same(before, after)) result.problem = "changed while it was copied";
    if (::ftruncate(file.get(), std::min(before.st_size, after.st_size)) != 0) {  // A hole at the end has to be made.
      throw std::system_error(errno, std::generic_category());
    }
    // Not every file system has these; the content is what counts.
    const timespec times[2] = {before.st_atim, before.st_mtim};
    static_cast<void>(::fchmod(file.get(), before.st_mode & kPermissions));
    static_cast<void>(::futimens(file.get(), times));
    if (::close(file.release()) != 0) throw std::system_error(errno, std::generic_category());
    result.exists = true;
    return result;
  } catch (const Copier::Interrupted& interrupted) {
    result.problem = interrupted.why;
  } catch (const std::system_error& error) {
    result.problem = reason_of(error.code().value());
    result.disk_is_full = error.code().value() == ENOSPC || error.code().value() == EDQUOT;
  }
  ::unlinkat(to, name.c_str(), 0);
  return result;
}

}  // namespace gyre::jobs::node::internal
