#pragma once

#include <string>
#include <vector>

#include "gyre/jobs/node/expansion.h"
#include "gyre/jobs/orders/work_order.h"

namespace gyre::jobs::node {

/// One process that the node program of a node starts.
struct ProcessPlan {
  std::string shell_line;  ///< For bash, in the job's environment.
  Variables variables;     ///< Of this process alone.
  std::string role = "default";
  int index = 0;      ///< Within its role.
  int role_size = 1;  ///< Over all nodes.
  /// It never ends by itself (a parameter server): it is ended once all other processes of the job have.
  bool server = false;
  std::string log_suffix;  ///< stdout<suffix>.txt and stderr<suffix>.txt: "", "-3", "-wk-0".

  bool operator==(const ProcessPlan&) const = default;
};

/// What runs on one node.
struct NodePlan {
  std::vector<ProcessPlan> processes;
  /// The processes are ranks of one job over all nodes, to which Gyre's and torch's variables are handed down; else
  /// each stands alone, and starts ranks, if it wants any, by itself.
  bool ranks = false;
  int first_rank = 0;
  int size = 1;         ///< Ranks of all nodes.
  int master_port = 0;  ///< Where torch's store and Gyre's rendezvous are found at the master's address; 0 where there
  int rendezvous_port = 0;  ///< are no ranks.

  bool operator==(const NodePlan&) const = default;
};

/// How many ports of node `node` the plan below needs. Pure.
int ports_needed(const orders::WorkOrder& order, int node);

/// Who starts what, on every node of `order.nodes`. `facts`: of every node, with ports_needed() ports each. The order's
/// own node does not matter: all nodes come to the same plan. Pure.
///
/// Every toolkit's program is started as Batch AI did. What ran under mpirun there runs under mpirun where all nodes
/// have the same MPI, else under `gyre run`, as in jobs with the variable GYRE_KERAS_2018. Lines refer to $GYRE_PROGRAM
/// and $GYRE_REMOTE_SHELL, which every process has.
std::vector<NodePlan> launch_plan(const orders::WorkOrder& order, const std::vector<orders::NodeFacts>& facts);

/// How many processes AZ_BATCHAI_MPI_HOST_FILE speaks of; 0: the job's own line decides.
int mpi_processes(const spec::JobSpec& job);

}  // namespace gyre::jobs::node
