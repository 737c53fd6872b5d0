#include "gyre/jobs/http/internal/contained_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "gyre/base/parse.h"
#include "gyre/net/http/error.h"

namespace gyre::jobs::http::internal {
namespace {

using net::http::HttpError;

/// openat2 asks to be called again when a directory is renamed during the walk.
constexpr int kMostTries = 64;

HttpError failure_of(int failure, std::string_view relative) {
  switch (failure) {
    case EXDEV:
    case ELOOP:
      return {403, "LinkLeavesDirectory", "a link in this path leads out of the job's directories",
              std::string(relative)};
    case EACCES:
    case EPERM: return {403, "FileNotReadable", "the service may not read this", std::string(relative)};
    case ENOENT:
    case ENOTDIR:
    case ENAMETOOLONG: return {404, "FileNotFound", fmt::format("there is no '{}'", relative), std::string(relative)};
    default: throw system_error(fmt::format("opening '{}'", relative), failure);
  }
}

/// As openat2(2): negative with errno where it fails.
int open_resolved(int directory, const char* path, std::uint64_t resolve) {
  open_how how{};
  how.flags = O_PATH | O_CLOEXEC;
  how.resolve = resolve;
  for (int i = 0; i < kMostTries; ++i) {
    const long fd = ::syscall(SYS_openat2, directory, path, &how, sizeof(how));
    if (fd >= 0 || errno != EAGAIN) return static_cast<int>(fd);
  }
  return -1;
}

/// As open_resolved, without openat2; refuses every link with ELOOP.
int open_stepwise(int directory, const std::string& path) {
  UniqueFd at(::openat(directory, ".", O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!at) return -1;
  if (path == ".") return at.release();
  for (const std::string& segment : split(path, '/')) {
    UniqueFd next(::openat(at.get(), segment.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    if (!next) return -1;
    struct stat status{};
    if (::fstat(next.get(), &status) != 0) return -1;
    if (S_ISLNK(status.st_mode)) {
      errno = ELOOP;
      return -1;
    }
    at = std::move(next);
  }
  return at.release();
}

int open_place(int directory, const std::string& path, Walk walk, bool links_allowed) {
  if (walk == Walk::kStepwise) return open_stepwise(directory, path);
  return open_resolved(directory, path.c_str(),
                       RESOLVE_BENEATH | (links_allowed ? RESOLVE_NO_MAGICLINKS : RESOLVE_NO_SYMLINKS));
}

/// Asked once: a sandbox may refuse what it does not know.
Walk system_walk() {
  static const Walk kWalk = [] {
    const UniqueFd probe(open_resolved(AT_FDCWD, ".", RESOLVE_BENEATH));
    return probe ? Walk::kKernel : Walk::kStepwise;
  }();
  return kWalk;
}

/// Opens for reading what `place` (O_PATH) stands for.
UniqueFd reopen(const UniqueFd& place, std::string_view relative) {
  struct stat status{};
  if (::fstat(place.get(), &status) != 0) throw system_error("looking at a job's file", errno);
  // To open a pipe or a device can wait, or do something.
  if (!S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode)) throw failure_of(ENOENT, relative);
  UniqueFd opened(::open(fmt::format("/proc/self/fd/{}", place.get()).c_str(), O_RDONLY | O_CLOEXEC));
  if (!opened) throw failure_of(errno, relative);
  return opened;
}

}  // namespace

UniqueFd open_directory(const std::filesystem::path& root, const std::filesystem::path& relative) {
  const HttpError missing(404, "DirectoryNotFound", "this directory of the job does not exist (yet)");
  const UniqueFd base(::open(root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!base) throw HttpError(missing);
  const UniqueFd place(open_place(base.get(), relative.string(), system_walk(), false));
  if (!place && (errno == ENOENT || errno == ENOTDIR)) throw HttpError(missing);
  if (!place) throw failure_of(errno, "");
  UniqueFd opened = reopen(place, "");
  struct stat status{};
  if (::fstat(opened.get(), &status) != 0 || !S_ISDIR(status.st_mode)) throw HttpError(missing);
  return opened;
}

UniqueFd open_beneath(const UniqueFd& directory, std::string_view relative) {
  return open_beneath(directory, relative, system_walk());
}

UniqueFd open_beneath(const UniqueFd& directory, std::string_view relative, Walk walk) {
  const std::string path = relative.empty() ? "." : std::string(relative);
  const UniqueFd place(open_place(directory.get(), path, walk, true));
  if (!place) throw failure_of(errno, relative);
  return reopen(place, relative);
}

}  // namespace gyre::jobs::http::internal
