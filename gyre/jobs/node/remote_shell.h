#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "gyre/base/file.h"
#include "gyre/net/handshake.h"

namespace gyre::jobs::node {

// The nodes of a job reach each other without sshd: on each of them a small server, one of the job's own processes,
// runs commands for those who know the attempt's key. `ssh` on the job's PATH is its client, and mpirun's and
// `gyre run`'s way to other nodes.

/// Names the file below, in the environment of jobs.
constexpr const char* kShellTableVariable = "GYRE_JOB_SHELLS";

/// Names the program that reaches other nodes as ssh does: our `ssh`.
constexpr const char* kRemoteShellVariable = "GYRE_REMOTE_SHELL";
/// Beside the table of shells: why a launcher was ended that waited for a node.
constexpr const char* kFailureNote = "failure";

/// Where the shells of a job's nodes are. Its file is for the job's user alone.
struct ShellTable {
  std::string key;  ///< 64 hexadecimal digits.
  /// By address. 0: of the job's only node, which has no server. Commands for it run where they are asked for.
  std::map<std::string, int> ports;
  /// By address: which of the job's nodes is there, from 0. Its shell proves it.
  std::map<std::string, std::uint32_t> numbers;
  /// By node id: its address.
  std::map<std::string, std::string> addresses;
};
nlohmann::json to_json(const ShellTable& table);
/// Error(kCorruptData).
ShellTable shell_table_from_json(const nlohmann::json& json);

/// What `ssh OPTIONS… HOST COMMAND…` asks for. Options that are about keys, terminals and the like mean nothing here.
struct ShellRequest {
  std::string host;     ///< Without "user@".
  std::string command;  ///< Its words joined by spaces, as ssh does; empty: a shell that reads stdin.
  bool without_stdin = false;
};
/// Error(kInvalidArgument) when no host is named.
ShellRequest parse_ssh_arguments(const std::vector<std::string>& arguments);

/// The client: runs the request on that node with our stdin, stdout and stderr, and returns its exit code. A host that
/// is not in the table is left to the real ssh, which takes our place. 255 with one line on stderr when the node cannot
/// be reached, as ssh says it. For single-threaded processes.
int run_remote_shell(const std::vector<std::string>& arguments, const std::string& table_file,
                     const std::vector<std::string>& environment);

/// The server: serves connections of `listening_socket` in a process each, until it is killed. When a connection
/// breaks, the command gets an end of its input, SIGHUP a little later, and then SIGKILL. For single-threaded
/// processes. `node`: which of the job's nodes this is.
[[noreturn]] void serve_remote_shells(UniqueFd listening_socket, const net::JobKey& key, std::uint32_t node,
                                      const std::vector<std::string>& environment);

}  // namespace gyre::jobs::node
