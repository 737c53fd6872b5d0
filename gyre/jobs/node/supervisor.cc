#include "gyre/jobs/node/supervisor.h"

#include <poll.h>
#include <spdlog/logger.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <optional>
#include <sstream>

#include "gyre/base/clock.h"
#include "gyre/base/error.h"
#include "gyre/base/process.h"
#include "gyre/base/process_stat.h"
#include "gyre/jobs/node/internal/attempt_container.h"
#include "gyre/jobs/node/lost_node.h"
#include "gyre/jobs/node/mounts.h"
#include "gyre/jobs/node/strays.h"

namespace gyre::jobs::node {

namespace {

namespace fs = std::filesystem;

constexpr int kAfterRequest = 128 + SIGTERM;
constexpr int kLookMs = 1'000;  // Descendants that were left to us and have ended are reaped this often.
constexpr int kShortestPauseMs = 50;
constexpr int kLongestPauseMs = 2'000;
constexpr std::chrono::seconds kLongLife{10};  // Of a node program after which the next death is the first again.
constexpr std::chrono::seconds kLongestEnd{20};
constexpr std::chrono::seconds kLongestRemoval{10};

std::vector<pid_t> children() {
  std::vector<pid_t> found;
  if (!proc_has_our_numbers()) return found;
  std::error_code failure;
  for (const auto& entry : fs::directory_iterator("/proc", failure)) {
    const std::string name = entry.path().filename();
    if (std::isdigit(static_cast<unsigned char>(name.front())) == 0) continue;
    std::ifstream file(entry.path() / "stat");
    std::string text;
    std::getline(file, text);
    const std::size_t end_of_name = text.rfind(')');
    if (end_of_name == std::string::npos) continue;
    std::istringstream rest(text.substr(end_of_name + 1));
    char state = 0;
    pid_t parent = 0;
    if (rest >> state >> parent && parent == ::getpid()) found.push_back(static_cast<pid_t>(std::stol(name)));
  }
  return found;
}

/// Children's children become ours, so that killing children again and again ends all descendants.
void kill_descendants() {
  const Deadline deadline = Deadline::after(kLongestEnd);
  while (!deadline.passed()) {
    const std::vector<pid_t> left = children();
    if (left.empty()) return;
    for (const pid_t child : left) ::kill(child, SIGKILL);
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    ::poll(nullptr, 0, 10);
  }
}

/// What podman leaves with a container, which removes it when its first process has ended.
void await_children() {
  const Deadline deadline = Deadline::after(kLongestRemoval);
  while (!deadline.passed() && !children().empty()) {
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    ::poll(nullptr, 0, 10);
  }
}

/// Whether the attempt in hand has, or may have, a container.
bool has_container(const fs::path& root) {
  const auto order = order_in_hand(root);
  return order && internal::runs_in_container(*order);
}

/// Those that were left to us; the node program itself is its Process's.
void reap_others(pid_t program) {
  for (const pid_t child : children()) {
    if (child != program) ::waitpid(child, nullptr, WNOHANG);
  }
}

void remove_root(const SupervisorOptions& options) {
  try {
    remove_folder(options.root);
  } catch (const Error& error) {
    options.logger->warn("{}", error.what());
  }
}

class Supervisor {
 public:
  Supervisor(const SupervisorOptions& options, int stop_fd) : options_(options), stop_fd_(stop_fd) {}

  int run() {
    for (;;) {
      const auto started = SteadyClock::now();
      SpawnOptions spawn;
      spawn.argv = options_.command;
      spawn.environment = options_.environment;
      spawn.parent_death_signal = SIGKILL;
      Process program = Process::spawn(spawn);
      const auto status = wait_for(program);
      if (!status) return kAfterRequest;
      program.reap();
      if (status->signal == 0) return status->code;
      if (SteadyClock::now() - started > kLongLife) pause_ms_ = kShortestPauseMs;
      options_.logger->warn("the agent was killed by {}; starting it again", signal_name(status->signal));
      if (stopped_within(pause_ms_)) return kAfterRequest;
      pause_ms_ = std::min(2 * pause_ms_, kLongestPauseMs);
    }
  }

 private:
  /// Nothing when we are to end; the node program is dead then.
  std::optional<ExitStatus> wait_for(Process& program) const {
    for (;;) {
      if (const auto status = program.exit_status()) return status;
      std::array<pollfd, 2> waits = {{{program.pidfd(), POLLIN, 0}, {stop_fd_, POLLIN, 0}}};
      ::poll(waits.data(), waits.size(), kLookMs);
      if (waits[1].revents != 0) {
        program.signal(SIGKILL);
        program.wait(Deadline::after(kLongestEnd));
        program.reap();
        return std::nullopt;
      }
      reap_others(program.pid());
    }
  }

  bool stopped_within(int limit_ms) const {
    pollfd wait{.fd = stop_fd_, .events = POLLIN, .revents = 0};
    return ::poll(&wait, 1, limit_ms) > 0;
  }

  const SupervisorOptions& options_;
  int stop_fd_;
  int pause_ms_ = kShortestPauseMs;
};

}  // namespace

int supervise(const SupervisorOptions& options, int stop_fd) {
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0) throw system_error("cannot become a subreaper", errno);
  const int code = Supervisor(options, stop_fd).run();
  if (code != 0) {
    const bool contained = has_container(options.root);
    // First by their sockets: processes of another user's that have left our tree are found so, too.
    abandon_attempt(options.root);
    if (contained) await_children();
  }
  kill_descendants();
  remove_root(options);
  return code;
}

}  // namespace gyre::jobs::node
