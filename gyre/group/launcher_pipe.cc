#include "gyre/group/launcher_pipe.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

#include "gyre/base/error.h"
#include "gyre/base/launch_contract.h"

namespace gyre::group {

std::shared_ptr<LauncherPipe> LauncherPipe::inherited(int descriptor) {
  struct stat status{};
  if (::fstat(descriptor, &status) != 0 || !S_ISFIFO(status.st_mode)) return nullptr;
  const int flags = ::fcntl(descriptor, F_GETFL);
  if ((flags & O_ACCMODE) != O_WRONLY || (flags & O_NONBLOCK) == 0) return nullptr;  // Programs' own pipes block.
  UniqueFd copy(::fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
  if (!copy) throw system_error(launch_contract::kFailureDescriptor, errno);
  return std::make_shared<LauncherPipe>(std::move(copy));
}

void LauncherPipe::ends(int rank) const { tell("ends", rank); }
void LauncherPipe::failed(int rank) const { tell("failed", rank); }
void LauncherPipe::left(int rank) const { tell("left", rank); }

void LauncherPipe::may_be_lost(int rank) const { tell("may-be-lost", rank); }

void LauncherPipe::tell(const char* word, int rank) const {
  const std::string line = fmt::format("{} {}\n", word, rank);  // So short that the kernel does not mix it with others.
  [[maybe_unused]] const ssize_t written = ::write(write_end_.get(), line.data(), line.size());
}

}  // namespace gyre::group
