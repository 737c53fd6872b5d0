#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gyre/base/file.h"
#include "gyre/base/process.h"
#include "gyre/jobs/containers/container_runtime.h"
#include "gyre/jobs/node/expansion.h"
#include "gyre/jobs/node/mounts.h"
#include "gyre/jobs/orders/node_report.h"
#include "gyre/jobs/orders/work_order.h"

namespace gyre::jobs::node {

class CodeCache;

/// As whom jobs run.
struct JobUser {
  UserId id;
  std::string name;
};

/// Error(kInvalidArgument) when there is no such user, or it is root.
JobUser find_job_user(const std::string& name);

struct NodeOptions {
  std::filesystem::path root;  ///< The node's own folder; absolute.
  std::string gyre_program;    ///< The program `gyre`; absolute.
  Variables base;              ///< The environment beneath that of jobs: PATH and the like.
  /// Of jobs whose order names no account. Unset: all jobs run as this process's user, which must not be root.
  std::optional<JobUser> user;
  MountMethod mounts = MountMethod::kLink;
  std::chrono::seconds grace{5};   ///< From a request to end to SIGKILL.
  std::filesystem::path own = {};  ///< As NodeFolders takes it.
  /// Of virtual environments of an account, which the machine keeps for later jobs (ADR 139).
  std::uint64_t environment_bytes = 20'000'000'000;
  const CodeCache* codes = nullptr;  ///< Where the code of jobs comes from. It was told that the attempt wants its.
  /// Where images and containers lie, and the environment of the programs that start them.
  std::filesystem::path containers = containers::kDefaultStorage;
  std::vector<std::string> runtime_environment = {};
};

/// One attempt on one node, from its order to its exit record. Runs on a thread of its own; all calls are thread-safe
/// and return at once.
///
/// * Everything runs under `gyre launch` processes, which outlive this object: when it is destroyed in the middle, and
///   resume() is called later, by whatever process, the attempt goes on as if nothing had happened. When a `gyre
///   launch` dies its processes are ended, and the record says InternalError.
/// * Each step is written down before it is taken, so that no step is taken twice.
/// * The exit record is on disk before report() shows it.
class NodeJob {
 public:
  /// A new attempt; what an earlier one left in the job's temporary folder is wiped. Error(kInvalidArgument) where the
  /// node does not have the order's account.
  NodeJob(const NodeOptions& options, const orders::WorkOrder& order);
  /// The attempt that a process before us had not finished; null when there is none. Error(kCorruptData).
  static std::unique_ptr<NodeJob> resume(const NodeOptions& options);
  /// Leaves the attempt as it is.
  ~NodeJob();
  NodeJob(const NodeJob&) = delete;
  NodeJob& operator=(const NodeJob&) = delete;

  /// All nodes are prepared: starts this node's processes. `facts`: of all nodes. Only the first call counts.
  void run(const std::vector<orders::NodeFacts>& facts);
  /// All nodes are done: ends servers and lets the node go.
  void finish();
  /// Ends what runs. Only the first reason counts, but a later call may shorten the grace.
  void stop(orders::StopReason reason, std::chrono::seconds grace);
  /// Runs a command in the job, as one that asks for it over `channel` (internal/command_session.h), with the
  /// environment of a rank, or of the node's first. The channel ends where that cannot be.
  void start_command(std::optional<int> rank, UniqueFd channel);
  /// The job's code has come, or will not.
  void code_came();

  const orders::WorkOrder& order() const;
  orders::NodeReport report() const;
  /// Readable when report() has changed since the last clear_changed().
  int changed_fd() const;
  void clear_changed();

 private:
  class Run;
  explicit NodeJob(std::unique_ptr<Run> run);
  std::unique_ptr<Run> run_;
};

}  // namespace gyre::jobs::node
