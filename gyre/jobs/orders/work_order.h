#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gyre/jobs/spec/cluster_spec.h"
#include "gyre/jobs/spec/job_spec.h"

namespace gyre::jobs::orders {

/// A node that a job runs on.
struct NodePlace {
  std::string id;
  /// Where the job's other nodes reach it. Empty: nobody knows before its node program has come, which tells cores and
  /// gpus too.
  std::string address;
  int cores = 1;
  int gpus = 0;
  std::string registered_as = {};  ///< The name under which its node program registers. Empty: the id.
  /// The GPUs that are the attempt's own there, as CUDA_VISIBLE_DEVICES names them. Missing: its processes see what the
  /// node program sees.
  std::optional<std::vector<std::string>> devices = {};

  const std::string& registered_name() const { return registered_as.empty() ? id : registered_as; }
  bool operator==(const NodePlace&) const = default;
};

/// One attempt to run a job, as the service hands it to the node program of each node. Holds the job's secrets.
struct WorkOrder {
  std::string attempt;     ///< Never used twice: a second order with the same name is the same order.
  int attempt_number = 1;  ///< From 1, over all attempts of the job.
  std::string job_name;    ///< Names AZ_BATCHAI_JOB_TEMP.
  /// As which the job runs where the node program is root. A name, which each node looks up for itself: numbers of
  /// accounts differ between machines. Empty: NodeOptions::user.
  std::string account;
  std::string cluster_name;
  std::string path_segment;  ///< jobOutputDirectoryPathSegment; relative, without "..".
  spec::JobSpec job;
  spec::ClusterSpec cluster;
  std::string setup_path_suffix;  ///< stdOutErrPathSuffix of the cluster's setup task.
  std::vector<NodePlace> nodes;   ///< At least one; the first is the master.
  int node = 0;                   ///< Which of them the order is for.
  std::string shared_folder;      ///< A path that leads to the same folder on all nodes.
  /// Where every node shows the mounts of the cluster and of the job, each for itself: the same paths on all nodes.
  /// Empty: in the node's own folder, which has the same path on all nodes then.
  std::string mount_root;
  std::string job_mount_root;
  /// Where every node shows its own folder of jobs, so that $AZ_BATCHAI_JOB_TEMP has the same path on all of them too.
  /// Only for nodes that have mount namespaces. Empty: as above.
  std::string jobs_root;
  /// Of the archive (64 digits) that each node unpacks for the job; empty: it comes without code.
  std::string code_sha256;
  /// Where the service has that archive. Nodes are not told: they ask for its bytes (ADR 131).
  std::string code_archive;
  std::uint64_t log_bytes = 0;  ///< How long the logs of its processes may become, on all nodes together; 0: at will.
  /// Logs that would lie in the node's own folder are sent to the service while they are written (ADR 127).
  bool sends_logs = false;
  std::string key;  ///< 64 hexadecimal digits: the secret that the nodes of this attempt share.

  const NodePlace& here() const { return nodes[static_cast<std::size_t>(node)]; }
  bool is_master() const { return node == 0; }
  bool operator==(const WorkOrder&) const = default;
};

/// Which MPI a node has.
enum class Mpi {
  kNone,
  kOpenMpi,
  kHydra,  ///< MPICH and Intel MPI.
};

/// What a node knows about itself once it is prepared.
struct NodeFacts {
  Mpi mpi = Mpi::kNone;
  std::vector<int> ports;  ///< Free ones of its address, kept for this attempt: ports_needed().
  int shell_port = 0;      ///< Where its remote shell listens; 0: it has none, because the job has no other node.

  bool operator==(const NodeFacts&) const = default;
};

/// The uuid of an attempt's job.
std::string job_of(const std::string& attempt);

/// Letters, digits, "-" and "_", 1 to 64 of them: names that become names of files.
bool is_plain_name(std::string_view name);
/// 64 lower-case hexadecimal digits: names of files too.
bool is_sha256(std::string_view text);
/// What can be the name of an account, those of directory services included ("ada@example.org").
bool is_account_name(std::string_view name);
/// What can be an address or a host name.
bool is_address(std::string_view text);
bool is_numeric_address(const std::string& text);

nlohmann::json to_json(const WorkOrder& order);
nlohmann::json to_json(const NodeFacts& facts);

/// From untrusted text: every field is checked, also whether it can be part of a path. Error(kCorruptData) names it.
WorkOrder work_order_from_json(const nlohmann::json& json);
NodeFacts node_facts_from_json(const nlohmann::json& json);

}  // namespace gyre::jobs::orders
