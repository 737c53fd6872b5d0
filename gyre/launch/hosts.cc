#include "gyre/launch/hosts.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "gyre/base/error.h"
#include "gyre/launch/host.h"
#include "gyre/launch/internal/hosts/description.h"
#include "gyre/launch/internal/hosts/hosts_run.h"

namespace gyre::launch {

namespace {

/// What an agent may be told about a job: the command and the variables of the environment.
constexpr std::size_t kMostDescriptionBytes = std::size_t{8} << 20;

/// A line from stdin, which stays open behind it.
std::string read_line() {
  std::string line;
  char letter = 0;
  for (;;) {
    const ssize_t count = ::read(STDIN_FILENO, &letter, 1);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0 || line.size() >= kMostDescriptionBytes) {
      throw Error(ErrorCode::kInvalidArgument,
                  "--agent is for `gyre run -H`, which sends the job's description through stdin");
    }
    if (letter == '\n') return line;
    line += letter;
  }
}

}  // namespace

LaunchResult run_on_hosts(const HostsOptions& options) { return HostsRun(options).run(); }

LaunchResult run_as_agent(const std::vector<std::string>& environment, const std::vector<std::string>& server_command) {
  // In two steps: the caller learns first that every host can be reached, and which ports are free.
  const ReservedPort store = reserve_port();
  const ReservedPort rendezvous = reserve_port();
  fmt::print("gyre-agent {} {}\n", store.port, rendezvous.port);
  std::fflush(stdout);
  LaunchOptions job;
  job.environment = environment;
  job.server_command = server_command;
  job.lifeline_fd = STDIN_FILENO;
  std::string folder;
  job = read_description(read_line(), std::move(job), folder);
  std::error_code failure;
  std::filesystem::current_path(folder, failure);
  if (failure) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("this host has no folder like the one where the job was started: {}: {}", folder,
                            failure.message()));
  }
  return run_on_console(job);
}

}  // namespace gyre::launch
