#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "gyre/jobs/scheduler/line.h"
#include "gyre/jobs/scheduler/state.h"

namespace gyre::jobs::scheduler {

/// Why something is done. The names are stable: they stand in events and in `-o json`.
enum class Reason {
  kResourcesFree,   ///< First in line, and all that the job needs is free.
  kBackfill,        ///< Not first in line, but delays nobody who is.
  kNodeLost,        ///< A node of the job vanished.
  kAttemptsUsedUp,  ///< A node of the job vanished once too often.
  kWallClockLimit,  ///< The attempt reached its wall-clock limit.
  kClusterShrinks,  ///< The cluster has more nodes than its target.
  kClusterGrows,    ///< The cluster has fewer nodes than its target.
  kClusterIsGone,   ///< The job's cluster does not exist any more.
};

/// "resourcesFree", "nodeLost", …
std::string_view reason_name(Reason reason);

/// Start an attempt on exactly these nodes, all of them ready and idle, in ascending order.
struct StartJob {
  JobId job = 0;
  int attempt = 0;  ///< From 1.
  std::vector<NodeId> nodes{};
  bool operator==(const StartJob&) const = default;
};

/// End the running attempt and queue the job again, in its old place.
struct RequeueJob {
  JobId job = 0;
  int attempt = 0;
  bool operator==(const RequeueJob&) const = default;
};

/// End the running attempt, and the job with it.
struct TerminateJob {
  JobId job = 0;
  int attempt = 0;
  bool operator==(const TerminateJob&) const = default;
};

/// Give the node back; no job runs on it.
struct ReleaseNode {
  NodeId node = 0;
  bool operator==(const ReleaseNode&) const = default;
};

/// Ask for more nodes; from now on they are in the State, as kPreparing.
struct AllocateNodes {
  ClusterId cluster = 0;
  int count = 0;
  bool operator==(const AllocateNodes&) const = default;
};

using Action = std::variant<StartJob, RequeueJob, TerminateJob, ReleaseNode, AllocateNodes>;

struct Decision {
  Action action{};
  Reason reason = Reason::kResourcesFree;
  std::string why{};  ///< For the job's events: "node 7 was lost".
  bool operator==(const Decision&) const = default;
};

/// What to do now, in the order in which to do it. Pure and deterministic; for the same State, also in another order,
/// it decides the same. Asked again after its decisions are reflected in the State it has nothing to add.
///
/// Order. Waiting jobs stand in line by priority, then by sequence, at each thing they need: their cluster's nodes and,
/// where there is one, their workspace's quota. A job that is first in all its lines starts as soon as all its nodes
/// are ready and idle and the quota allows it; until then it is a head, and has a reservation for the moment at which
/// running jobs, by their wall-clock limits, will have made room. Any other job may start before jobs ahead of it
/// (backfill) only if that cannot delay a head: it ends, by its own limit, before the head could start, or the head
/// does not need what it takes. Nodes being prepared or cleaned may become ready at any moment, so a head that they
/// could serve counts as one that could start now. Source: the EASY backfilling of Lifka, "The ANL/IBM SP scheduling
/// system", JSSPP 1995, with a second resource.
///
/// A job whose cluster can never have enough nodes, or whose quota is too small for it, delays nobody.
std::vector<Decision> decide(const State& state);
/// The same with the waiting jobs of `waiting` instead of the State's own. A queue whose jobs do not fit costs nothing
/// beyond the first of them.
std::vector<Decision> decide(const State& state, const Line& waiting);

}  // namespace gyre::jobs::scheduler
