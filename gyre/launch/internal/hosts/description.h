#pragma once

#include <string>
#include <vector>

#include "gyre/base/secret_key.h"
#include "gyre/launch/hosts.h"
#include "gyre/launch/internal/hosts/remote_agent.h"

namespace gyre::launch {

/// What starts the agent of `host`.
std::vector<std::string> agent_command(const HostsOptions& options, const Host& host);

/// `failure`, and what a person can do about it.
std::string explain_unreachable(const HostsOptions& options, const Host& host, const std::string& failure);

/// What all agents of a job are told alike.
struct JobPlace {
  std::string store_address;  ///< Where the other hosts find the first one, which has torch's store.
  int store_port = 0;
  std::string rendezvous;  ///< "tcp:HOST:PORT" on the host of the first parameter server, or of rank 0.
  SecretKey key;
};
/// `ports`: those that are free on each host.
JobPlace make_job_place(const HostsOptions& options, const std::vector<RemoteAgent::Ports>& ports);

/// The job, as the agent of host `node` is told of it: a line of JSON, in which each byte of a string is a character.
std::string describe(const HostsOptions& options, const JobPlace& place, std::size_t node);

/// Where ranks start here that start in `folder` on the launcher's host. `job_folder`: launch_contract::kJobFolder of
/// that host, `own_job_folder` of this one; either may be empty. Pure.
std::string own_folder(const std::string& folder, const std::string& job_folder, const std::string& own_job_folder);

/// The agent's side. What it does not say of the job stays as it is in `job`. `folder`: becomes this host's own
/// (own_folder()). Error(kInvalidArgument).
LaunchOptions read_description(const std::string& line, LaunchOptions job, std::string& folder);

}  // namespace gyre::launch
