#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "gyre/base/log.h"
#include "gyre/jobs/node/node_job.h"
#include "gyre/net/endpoint.h"
#include "gyre/net/handshake.h"

namespace gyre::jobs::node {

struct NodeProgramOptions {
  NodeOptions node;
  std::string node_id;  ///< NodePlace::registered_name().
  net::Endpoint service;
  /// Where `service` stands, as text, instead; read before every connection, since a service may move.
  std::filesystem::path service_file = {};
  /// Where other nodes reach this one. Empty, or a host name: the address from which it reaches the service.
  std::string address = {};
  std::function<net::JobKey()> key = {};  ///< Asked before every connection: another service may take this one's place.
  /// Of archives of code that the node keeps for later jobs.
  std::uint64_t code_cache_bytes = 500'000'000;
  /// A node program that has no job and has not reached the service for so long ends. Zero: never.
  std::chrono::seconds give_up{0};
  /// The same where the service has not acknowledged an end, whose record goes with this node. Zero: as `give_up`.
  std::chrono::seconds give_up_untold{0};
  Logger logger = null_logger();
};

/// One node program per node: it dials the service, holds a lease, and runs what the service orders, one attempt at a
/// time.
///
/// * What a node program before it on the same node had begun goes on.
/// * The lease runs from the moment at which the last renewal that was answered was sent. When it is over, what the
///   attempt runs is killed; the service, which counts from when the renewal came, gives the job to others later.
/// * Records that the service has not said to forget are told again at every connection.
/// * If its folder is moved away, or another is put in its place, it connects to nobody any more, and writes nothing
///   about its attempt into the other one.
class NodeProgram {
 public:
  /// Error(kInvalidArgument) when another node program works in the same folder; Error(kIo).
  explicit NodeProgram(const NodeProgramOptions& options);
  ~NodeProgram();
  NodeProgram(const NodeProgram&) = delete;
  NodeProgram& operator=(const NodeProgram&) = delete;

  /// Until `stop_fd` is readable, the service says that the node is not needed, or it gives up. What runs is left
  /// running, for the next node program. Blocks.
  void run(int stop_fd);

 private:
  class Work;
  std::unique_ptr<Work> work_;
};

}  // namespace gyre::jobs::node
