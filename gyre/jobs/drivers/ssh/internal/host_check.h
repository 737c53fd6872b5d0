#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "gyre/jobs/drivers/node_engine.h"
#include "gyre/jobs/drivers/ssh/internal/client.h"
#include "gyre/jobs/drivers/ssh/options.h"

namespace gyre::jobs::drivers::ssh {

/// What a job can have on a host.
struct HostSize {
  std::uint64_t memory_bytes = 0;
  int cores = 0;
};

/// What a host has said of itself to a login.
struct HostAnswer {
  bool whole = false;  ///< It has said everything.
  std::string user;
  std::vector<std::string> lacks;  ///< Programs that are needed there.
  bool has_folder = false;         ///< options.node_folder is a folder,
  bool folder_usable = false;      ///< in which the login can make others.
  bool cache_usable = false;       ///< The same of the place of our program's copy.
  std::string program;             ///< What driverOptions.gyre says of its version; empty: there is no such program.
  std::string machine;             ///< Such as "x86_64".
  std::string c_library;           ///< Such as "2.36"; empty: it is not glibc.
  std::string place;               ///< Two hosts with the same one share a kernel and options.node_folder.
  HostSize size;
};

/// What the shell of a host reads from ssh to answer. It leaves nothing behind. Pure.
std::string check_script(const SshOptions& options);
/// Of what that has printed. Pure.
HostAnswer answer_in(const std::string& output);
/// What keeps the host from being a node of jobs. Pure.
std::vector<Missing> missing_on(const std::string& host, const HostAnswer& answer, const SshOptions& options);
/// Names of one host. `answers`: by the hosts' names. Pure.
std::vector<Missing> hosts_named_twice(const std::map<std::string, HostAnswer>& answers);

struct CheckedHosts {
  std::vector<Missing> missing;
  std::map<std::string, HostSize> sizes;  ///< Of the hosts that have answered.
};

/// Logs in to these hosts, whose keys have been confirmed, all at once. Takes half a minute at most, where a host does
/// not answer. Thread-safe.
CheckedHosts check_hosts(const SshOptions& options, const Client& client, const std::vector<std::string>& hosts);

}  // namespace gyre::jobs::drivers::ssh
