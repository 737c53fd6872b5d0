#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

namespace gyre::app {

/// The verb `gyre agent`: the job service's hand on one node. Drivers start it; people need not.
class NodeProgramCommand {
 public:
  explicit NodeProgramCommand(CLI::App& app);

  /// After the options were parsed. Returns the exit code. gyre::Error.
  int run(const std::vector<std::string>& environment, const std::string& called_as) const;

 private:
  int supervise(const std::vector<std::string>& environment, const std::string& program) const;

  std::string service_;
  std::string key_file_ = "-";
  std::string node_;
  std::string root_;
  std::string job_user_ = "nobody";
  std::string log_level_ = "info";
  int give_up_seconds_ = 0;
  int untold_seconds_ = 0;
  std::string code_cache_ = "500MB";
  std::string environment_cache_ = "20GB";
  bool foreground_ = false;
  std::string address_;
  bool supervise_ = false;
};

/// The verb `gyre attempt`: the process of an attempt, which the node program starts as the job's account. And the
/// process that it starts itself for each command that a user runs in the job (gyre/jobs/node/job_command.h).
class AttemptCommand {
 public:
  static constexpr const char* kCommandVerb = "agent-command";

  explicit AttemptCommand(CLI::App& app);

  /// After the options were parsed. Returns the exit code. gyre::Error.
  int run(const std::vector<std::string>& environment) const;
  int run_command(const std::vector<std::string>& environment) const;

 private:
  int program_fd_ = -1;
  int channel_fd_ = -1;
};

/// The two ends of the way into a job's container (gyre/jobs/node/container_holder.h).
class ContainerCommands {
 public:
  explicit ContainerCommands(CLI::App& app);

  /// After the options were parsed: the container's first process. gyre::Error.
  [[noreturn]] void run_holder(const std::vector<std::string>& environment) const;
  /// What stands for a process in the container. Returns its exit code. gyre::Error.
  int run_entry(const std::vector<std::string>& environment) const;

 private:
  void become_root(const std::vector<std::string>& environment) const;

  std::string socket_;
  std::string root_;
  int program_fd_ = -1;
  int code_fd_ = -1;
};

/// The two ends of the remote shell of a job's nodes (gyre/jobs/node/remote_shell.h): what `ssh` on a job's PATH
/// calls, and the server that it reaches.
class NodeShellCommands {
 public:
  explicit NodeShellCommands(CLI::App& app);

  /// `arguments`: those of ssh. Options of ssh are not ours, so that nothing is parsed before.
  static int run_client(std::vector<std::string> arguments, const std::vector<std::string>& environment);
  /// After the options were parsed.
  int run_server(const std::vector<std::string>& environment) const;

 private:
  int listen_fd_ = -1;
  int key_fd_ = -1;
  std::uint32_t node_ = 0;
};

}  // namespace gyre::app
