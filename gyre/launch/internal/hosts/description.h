#pragma once

#include <string>
#include <vector>

#include "gyre/launch/hosts.h"
#include "gyre/launch/internal/hosts/remote_agent.h"

namespace gyre::launch {

/// What starts the agent of `host`.
std::vector<std::string> agent_command(const HostsOptions& options, const Host& host);

/// `failure`, and what a person can do about it.
std::string explain_unreachable(const HostsOptions& options, const Host& host, const std::string& failure);

/// What all agents of a job are told alike.
struct JobPlace {
  std::string address;  ///< Where the other hosts find the first one.
  RemoteAgent::Ports ports;
  std::string key;  ///< In hexadecimal digits.
};
JobPlace make_job_place(const HostsOptions& options, const RemoteAgent::Ports& ports_of_first_host);

/// The job, as one agent is told of it: a line of JSON, in which each byte of a string is a character.
std::string describe(const HostsOptions& options, const JobPlace& place, int node, const std::vector<int>& ranks,
                     int size);

/// The agent's side. What it does not say of the job stays as it is in `job`. Error(kInvalidArgument).
LaunchOptions read_description(const std::string& line, LaunchOptions job, std::string& folder);

}  // namespace gyre::launch
