#include "gyre/jobs/node/container_root.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <grp.h>
#include <linux/capability.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <map>
#include <string_view>
#include <system_error>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/base/pipe.h"
#include "gyre/jobs/containers/program_files.h"

namespace gyre::jobs::node {

namespace {

namespace fs = std::filesystem;

/// Those of podman's containers.
constexpr std::array kKept = {CAP_CHOWN,  CAP_DAC_OVERRIDE, CAP_FOWNER,  CAP_FSETID,           CAP_KILL,
                              CAP_SETGID, CAP_SETUID,       CAP_SETPCAP, CAP_NET_BIND_SERVICE, CAP_SYS_CHROOT,
                              CAP_SETFCAP};

void write_map(const std::string& file, std::uint32_t root, const ContainerRoot& all) {
  const std::string map = fmt::format("0 {} 1\n1 {} {}\n", root, all.first_other, all.others);
  const UniqueFd opened(::open(file.c_str(), O_WRONLY | O_CLOEXEC));
  if (!opened) throw system_error(fmt::format("cannot open {}", file), errno);
  write_all(opened.get(), as_bytes(map), file);
}

/// In the namespace around: once the other end of `entered` is closed, says who is who in that of `process`.
[[noreturn]] void write_maps(pid_t process, const ContainerRoot& root, const UniqueFd& entered) {
  char ignored = 0;
  while (::read(entered.get(), &ignored, 1) < 0 && errno == EINTR) continue;
  try {
    write_map(fmt::format("/proc/{}/uid_map", process), root.user, root);
    write_map(fmt::format("/proc/{}/gid_map", process), root.group, root);
    ::_exit(0);
  } catch (const std::exception&) {
    ::_exit(1);
  }
}

}  // namespace

ContainerRoot parse_container_root(const std::string& text) {
  std::array<std::uint32_t, 4> numbers;
  const char* at = text.data();
  const char* const end = text.data() + text.size();
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const auto [next, failure] = std::from_chars(at, end, numbers[i]);
    const bool last = i + 1 == numbers.size();
    if (failure != std::errc() || (last ? next != end : next == end || *next != ':')) {
      throw Error(ErrorCode::kInvalidArgument, fmt::format("'{}' is not USER:GROUP:FIRST:COUNT", text));
    }
    at = next + 1;
  }
  return {.user = numbers[0], .group = numbers[1], .first_other = numbers[2], .others = numbers[3]};
}

std::vector<std::string> with_variables_of_image(const std::vector<std::string>& environment) {
  constexpr std::string_view kPrefix = containers::kVariableOfImage;
  std::map<std::string, std::string> all;
  for (const bool of_image : {false, true}) {
    for (const std::string& entry : environment) {
      if (entry.starts_with(kPrefix) != of_image) continue;
      const std::string own = entry.substr(of_image ? kPrefix.size() : 0);
      all[own.substr(0, own.find('='))] = own;
    }
  }
  std::vector<std::string> entries;
  for (const auto& [name, entry] : all) entries.push_back(entry);
  return entries;
}

void await_folder(const fs::path& folder, Deadline deadline) {
  // Readable in this way after each change of mounts (proc(5)).
  const UniqueFd mounts(::open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC));
  if (!mounts) throw system_error("cannot read the mounts", errno);
  std::error_code ignored;
  while (!fs::exists(folder, ignored)) {
    if (deadline.passed()) throw Error(ErrorCode::kTimeout, fmt::format("{} has not come", folder.string()));
    pollfd change{.fd = mounts.get(), .events = POLLPRI, .revents = 0};
    ::poll(&change, 1, deadline.poll_timeout_ms());
  }
}

void become_container_root(const ContainerRoot& root) {
  // The image's groups of its root are the machine's up to here.
  if (::setgroups(0, nullptr) != 0) throw system_error("cannot leave groups", errno);
  auto [entered, entry] = make_pipe();
  const pid_t self = ::getpid();
  const pid_t writer = ::fork();
  if (writer < 0) throw system_error("cannot fork", errno);
  if (writer == 0) {
    entry.reset();
    write_maps(self, root, entered);
  }
  const bool own = ::unshare(CLONE_NEWUSER) == 0;
  const int failure = errno;
  entry.reset();
  int status = 0;
  while (::waitpid(writer, &status, 0) < 0 && errno == EINTR) continue;
  if (!own) throw system_error("cannot make a user namespace", failure);
  if (status != 0) throw Error(ErrorCode::kIo, "the user namespace cannot have its accounts");
  if (::setresgid(0, 0, 0) != 0 || ::setresuid(0, 0, 0) != 0) throw system_error("cannot become root", errno);
  for (int capability = 0; ::prctl(PR_CAPBSET_READ, capability, 0, 0, 0) >= 0; ++capability) {
    const bool kept = std::ranges::find(kKept, capability) != kKept.end();
    if (!kept && ::prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0) throw system_error("cannot drop rights", errno);
  }
}

}  // namespace gyre::jobs::node
