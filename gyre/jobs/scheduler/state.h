#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace gyre::jobs::scheduler {

// All that a scheduling decision depends on, as plain values. The owner of the queue fills a State in, asks decide(),
// writes down what it intends to do, does it, and reflects it in the next State.

/// Milliseconds of any clock that never goes back.
using Time = std::chrono::milliseconds;
using JobId = std::int64_t;
using NodeId = std::int64_t;
using ClusterId = std::int64_t;

/// Of a job, in ascending order.
enum class Priority { kLow, kNormal, kHigh };

/// Of a cluster's nodes: low-priority ones may vanish at any time and count towards a quota of their own.
enum class NodePriority { kDedicated, kLowPriority };

enum class NodeReadiness {
  kPreparing,  ///< Being allocated, set up or cleaned; may become ready at any moment.
  kReady,      ///< Busy while a running job lists it, otherwise idle.
  kUnusable,   ///< Its preparation failed. It stays, and counts, until it is released.
  kLeaving,    ///< Being released.
  kLost,       ///< Vanished or out of reach for longer than its lease.
};

struct Node {
  NodeId id = 0;
  ClusterId cluster = 0;
  NodeReadiness state = NodeReadiness::kReady;
};

/// What happens to running jobs when a cluster shrinks below what they need.
enum class Deallocation {
  kRequeue,            ///< End them and queue them again.
  kTerminate,          ///< End them for good.
  kWaitForCompletion,  ///< Let them finish; nodes leave as they become idle.
};

/// A size set by a person.
struct ManualScale {
  int target_node_count = 0;
  Deallocation deallocation = Deallocation::kRequeue;
};

/// A size that follows what waiting and running jobs need, within limits. Jobs are never ended to shrink it.
struct AutoScale {
  int minimum_node_count = 0;
  int maximum_node_count = 0;
};

/// Nodes of one kind, with a queue of their own.
struct Cluster {
  ClusterId id = 0;
  std::string name{};
  NodePriority node_priority = NodePriority::kDedicated;
  int cores_per_node = 1;  ///< >= 1
  std::variant<ManualScale, AutoScale> scale{};
};

/// How many cores the running jobs of a workspace may hold on nodes of one priority. Without an entry: any number.
struct Quota {
  std::string workspace{};
  NodePriority node_priority = NodePriority::kDedicated;
  int cores = 0;
};

struct Job {
  JobId id = 0;
  std::string name{};
  std::string workspace{};
  ClusterId cluster = 0;
  Priority priority = Priority::kNormal;
  std::int64_t sequence = 0;  ///< Order of submission, unique; a job that is queued again keeps its number.
  int node_count = 1;         ///< >= 1; the job starts on that many nodes at once.
  Time wall_clock_limit = std::chrono::hours(24 * 7);  ///< > 0; for each attempt.
  int attempts = 0;                                    ///< Attempts so far, including the one that runs.
  int max_attempts = 0;  ///< When a node is lost and that many have been made, the job ends; 0: any number.
};

/// A job that holds nodes, from the decision to start it until all of its nodes are clean again.
struct RunningJob {
  Job job{};
  std::vector<NodeId> nodes{};
  Time started{};
  bool ending = false;  ///< Has ended or is being ended; its nodes come back at an unknown moment.
};

/// The order within the vectors does not matter.
struct State {
  Time now{};
  std::vector<Cluster> clusters{};
  std::vector<Node> nodes{};
  std::vector<Job> waiting{};
  std::vector<RunningJob> running{};
  std::vector<Quota> quotas{};
};

}  // namespace gyre::jobs::scheduler
