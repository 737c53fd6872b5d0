#include "gyre/jobs/containers/internal/container_places.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/mount.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <string>
#include <utility>

#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/base/pipe.h"

namespace gyre::jobs::containers::internal {

namespace {

namespace fs = std::filesystem;

/// A folder of ours as a mount that is nowhere yet.
struct Tree {
  UniqueFd mount;
  std::string target;
  std::vector<std::string> folders;  ///< On the way to the target, and it.
};

/// The copy of a process that has other threads: after fork() it may make system calls alone.
class Entrant {
 public:
  Entrant(const UniqueFd& mounts, const std::vector<Tree>& trees, const UserId& root)
      : mounts_(mounts), trees_(trees), root_(root) {}

  /// 0, or the error's number, with 256 for each step before it.
  int go() const {
    if (::setns(mounts_.get(), CLONE_NEWNS) != 0) return errno;
    for (const char* own : {"/", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf"}) {
      if (::lchown(own, root_.user, root_.group) != 0 && errno != ENOENT) return kStep + errno;
    }
    // All of them before the first one is shown: links in the image lead nowhere else then.
    for (const Tree& tree : trees_) {
      for (const std::string& folder : tree.folders) {
        if (::mkdir(folder.c_str(), 0755) == 0) {
          if (::lchown(folder.c_str(), root_.user, root_.group) != 0) return 2 * kStep + errno;
        } else if (errno != EEXIST) {
          return 2 * kStep + errno;
        }
      }
    }
    for (const Tree& tree : trees_) {
      if (::syscall(SYS_move_mount, tree.mount.get(), "", AT_FDCWD, tree.target.c_str(), MOVE_MOUNT_F_EMPTY_PATH) != 0)
        return 3 * kStep + errno;
    }
    return 0;
  }

  static constexpr int kStep = 256;

 private:
  const UniqueFd& mounts_;
  const std::vector<Tree>& trees_;
  const UserId& root_;
};

Tree tree_of(const BindMount& place) {
  Tree tree{.mount = UniqueFd(static_cast<int>(::syscall(SYS_open_tree, AT_FDCWD, place.source.c_str(),
                                                         OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE))),
            .target = place.target,
            .folders = {}};
  if (!tree.mount && errno == ENOSYS) {
    throw Error(ErrorCode::kUnsupported, "docker's containers need Linux 5.2 or later; podman's do not");
  }
  if (!tree.mount) throw system_error(fmt::format("cannot show {} in a container", place.source.string()), errno);
  fs::path folder;
  for (const fs::path& name : place.target) {
    folder /= name;
    if (folder != "/") tree.folders.push_back(folder);
  }
  return tree;
}

}  // namespace

void show_places(pid_t process, const std::vector<BindMount>& places, const UserId& root) {
  const UniqueFd mounts(::open(fmt::format("/proc/{}/ns/mnt", process).c_str(), O_RDONLY | O_CLOEXEC));
  if (!mounts) throw system_error("cannot look into the container", errno);
  std::vector<Tree> trees;
  const auto length = [](const Tree& tree) { return tree.target.size(); };
  // What lies in another place is shown after it. Clang finds something deprecated in std::stable_sort.
  for (const BindMount& place : places) {
    Tree tree = tree_of(place);
    const auto behind = std::ranges::upper_bound(trees, length(tree), {}, length);
    trees.insert(behind, std::move(tree));
  }
  auto [answer, question] = make_pipe();
  const Entrant entrant(mounts, trees, root);
  const pid_t child = ::fork();
  if (child < 0) throw system_error("cannot fork", errno);
  if (child == 0) {
    const std::int32_t result = entrant.go();
    const bool told = ::write(question.get(), &result, sizeof result) == sizeof result;
    ::_exit(told ? 0 : 1);
  }
  question.reset();
  std::int32_t result = -1;
  ssize_t count = 0;
  while ((count = ::read(answer.get(), &result, sizeof result)) < 0 && errno == EINTR) continue;
  while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) continue;
  if (count != sizeof result) throw Error(ErrorCode::kIo, "the container ended before it had its folders");
  if (result == 0) return;
  constexpr std::array kSteps = {"enter the container", "give the container its files", "make folders in the container",
                                 "show folders in the container"};
  throw system_error(fmt::format("cannot {}", kSteps.at(static_cast<std::size_t>(result / Entrant::kStep))),
                     result % Entrant::kStep);
}

}  // namespace gyre::jobs::containers::internal
