#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gyre/launch/console.h"

namespace gyre::launch {

/// One of `gyre run -H`.
struct Host {
  std::string name;            ///< For ssh, perhaps with a user.
  int slots = 1;               ///< How many ranks it takes, parameter servers apart; 0 where it has only these.
  std::vector<int> servers{};  ///< The job's parameter servers that it runs, numbered from 0, ascending.

  /// Whether it is plainly this machine. With a user, or by another of our addresses, it is reached through ssh.
  bool is_here() const;
  bool operator==(const Host&) const = default;
};

/// "node1:4,user@node2:2"; without a number, one slot. Error(kInvalidArgument).
std::vector<Host> parse_hosts(std::string_view text);

/// Lines "node1 slots=4", "node1:4" or "node1"; # begins a comment. Error(kInvalidArgument).
std::vector<Host> parse_host_file(std::string_view text);
/// Error(kInvalidArgument) when it cannot be read, too.
std::vector<Host> read_host_file(const std::string& path);

/// The hosts that are used, with as many slots as they get ranks. `ranks` 0: all slots. Error(kInvalidArgument).
std::vector<Host> divide(const std::vector<Host>& hosts, int ranks);

/// "node3,ada@node4": hosts for parameter servers, which need no slots. Error(kInvalidArgument).
std::vector<std::string> parse_server_hosts(std::string_view text);

/// `hosts` with parameter servers: server i runs on the host i modulo their number, of those in `names`, or where it is
/// empty, of all. Names that are not among the hosts come after them. Error(kInvalidArgument) for more ranks on a host
/// than kMostRanksPerHost. Pure.
std::vector<Host> place_servers(std::vector<Host> hosts, const std::vector<std::string>& names, int servers);

/// The numbers of each host's ranks, ascending: the ranks fill the hosts in their order, and the parameter servers come
/// after all of them. Pure.
std::vector<std::vector<int>> rank_numbers(const std::vector<Host>& hosts);

/// What `gyre run -H` starts.
struct HostsOptions {
  std::vector<Host> hosts;  ///< As divide() or place_servers() returns them.
  /// Its `ranks`, `part`, `server_command` and what is about restarts and input are not looked at.
  LaunchOptions job;
  std::vector<std::string> environment;  ///< What ssh gets, and the agent of this host: ours.
  std::vector<std::string> ssh;          ///< The program and its options that reach a host.
  std::string program;                   ///< This one, which is looked for on other hosts in the same place.
  /// A folder of this host that gets rank-0.log and so on of the ranks of all hosts, while they write.
  std::optional<std::filesystem::path> log_copies{};
  std::string folder;  ///< Where the ranks start, on each host; see launch_contract::kJobFolder.
};

/// The variables of `environment` that ranks on other hosts get: PATH, Python's, OpenMP's, Gyre's, torch's and so on.
std::vector<std::string> for_other_hosts(const std::vector<std::string>& environment);

/// A text as a shell would divide it into words: quotes and backslashes count, nothing else. Error(kInvalidArgument)
/// for a quote that is not closed. `what` names the text in the message.
std::vector<std::string> shell_words(std::string_view text, const std::string& what);

constexpr int kUnreachableExitCode = 255;

/// As run_on_console(), for a job over several hosts: starts an agent (`gyre run --agent`) on each of them, all at
/// once, and watches over them. Other hosts are reached through ssh, this one needs none. One rule, here, decides which
/// rank failed first, one block tells, and the ranks on all hosts end.
///
/// Nothing secret is in anybody's arguments or environment: the job's description, its key included, goes through the
/// agent's stdin. That stdin stays open for as long as the job may run; an agent that sees its end stops its ranks.
/// So whatever ends this process, nothing stays behind on any host.
LaunchResult run_on_hosts(const HostsOptions& options);

/// This process is an agent: reads the job's description from stdin, and runs the ranks of this host. `environment`:
/// what the ranks get beneath that of the description. `server_command`: what parameter servers run on this host.
/// Error(kInvalidArgument); else as run_on_console().
LaunchResult run_as_agent(const std::vector<std::string>& environment, const std::vector<std::string>& server_command);

}  // namespace gyre::launch
