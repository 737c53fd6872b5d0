#pragma once

#include <chrono>
#include <filesystem>
#include <string>

#include "gyre/base/log.h"
#include "gyre/jobs/agent/node_job.h"
#include "gyre/net/endpoint.h"
#include "gyre/net/handshake.h"

namespace gyre::jobs::agent {

struct AgentOptions {
  NodeOptions node;
  std::string node_id;  ///< NodePlace::agent_name().
  net::Endpoint service;
  /// Where `service` stands, as text, instead; read before every connection, since a service may move.
  std::filesystem::path service_file = {};
  /// Where other nodes reach this one. Empty, or a host name: the address from which it reaches the service.
  std::string address = {};
  net::JobKey key{};
  /// An agent that has no job and has not reached the service for so long ends. Zero: never.
  std::chrono::seconds give_up{0};
  Logger logger = null_logger();
};

/// One agent per node: it dials the service, holds a lease, and runs what the service orders, one attempt at a time.
///
/// * What an agent before it on the same node had begun goes on.
/// * The lease runs from the moment at which the last renewal that was answered was sent. When it is over, the agent
///   kills what the attempt runs; the service, which counts from when the renewal came, gives the job to others later.
/// * Records that the service has not said to forget are told again at every connection.
class Agent {
 public:
  /// Error(kInvalidArgument) when another agent works in the same folder; Error(kIo).
  explicit Agent(const AgentOptions& options);
  ~Agent();
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  /// Until `stop_fd` is readable, the service says that the node is not needed, or it gives up. What runs is left
  /// running, for the next agent. Blocks.
  void run(int stop_fd);

 private:
  class Work;
  std::unique_ptr<Work> work_;
};

}  // namespace gyre::jobs::agent
