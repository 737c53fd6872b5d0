#include "gyre/jobs/node/internal/waiting_launcher.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <fstream>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/base/process.h"
#include "gyre/base/process_stat.h"
#include "gyre/cli/table.h"

namespace gyre::jobs::node::internal {

namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kGrace{2};
constexpr std::size_t kLongestNote = 1'024;
constexpr int kNotFound = 127;
constexpr int kUnreachable = 255;

bool has_ended(const UniqueFd& process, std::chrono::milliseconds patience) {
  pollfd wait{.fd = process.get(), .events = POLLIN, .revents = 0};
  return ::poll(&wait, 1, static_cast<int>(patience.count())) > 0;
}

std::string reason_of(int exit_code) {
  if (exit_code == kUnreachable) return "its remote shell failed";
  if (exit_code == kNotFound) return "exit code 127: the program, or a library of it, is not there";
  return fmt::format("exit code {}", exit_code);
}

}  // namespace

std::optional<WaitingLauncher> WaitingLauncher::of_parent(const std::string& command, std::string node) {
  // hydra_pmi_proxy of MPICH and MVAPICH, hydra_bstrap_proxy of Intel MPI.
  const bool starts_proxy = command.find("hydra_") != std::string::npos;
  const pid_t parent = ::getppid();
  if (!starts_proxy || parent <= 1 || !proc_has_our_numbers()) return std::nullopt;
  UniqueFd process = open_pidfd(parent);
  std::string program;
  std::getline(std::ifstream(fmt::format("/proc/{}/comm", parent)), program);
  if (!process || !program.starts_with("mpi")) return std::nullopt;
  return WaitingLauncher(std::move(process), std::move(node));
}

void WaitingLauncher::proxy_failed(int exit_code, const fs::path& note, std::chrono::milliseconds patience) const {
  if (has_ended(process_, patience)) return;
  const std::string sentence =
      fmt::format("mpiexec's proxy on node {} could not be started, or has failed ({}); stderr.txt may say why", node_,
                  reason_of(exit_code));
  fmt::print(stderr, "ssh: {}; mpiexec would wait for it for ever, and is ended\n", sentence);
  std::fflush(stderr);
  try {
    write_file_atomically(note, as_bytes(sentence));
  } catch (const Error& error) {
    fmt::print(stderr, "ssh: {}\n", error.what());
  }
  send_signal(process_, SIGTERM);
  if (!has_ended(process_, kGrace)) send_signal(process_, SIGKILL);
}

std::string text_noted(const fs::path& note, uid_t owner) {
  const UniqueFd file(::open(note.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat status{};
  if (!file || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode) || status.st_uid != owner) return "";
  std::array<char, kLongestNote> text{};
  const ssize_t count = ::read(file.get(), text.data(), text.size());
  return count <= 0 ? "" : cli::printable({text.data(), static_cast<std::size_t>(count)});
}

}  // namespace gyre::jobs::node::internal
