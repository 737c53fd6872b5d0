#pragma once

#include <string_view>
#include <vector>

namespace gyre::jobs::resources {

// The states of Batch AI's resources, and of the service's own (attempts). name() gives the name that stands in
// answers, in events and in the catalog. may_change() is the table of all legal transitions.

enum class ProvisioningState { kCreating, kSucceeded, kFailed, kDeleting };

/// Of a job.
enum class ExecutionState {
  kQueued,       ///< New, or waiting for another attempt.
  kRunning,      ///< From the first moment that a node works for it; preparation counts.
  kTerminating,  ///< Being ended for good.
  kSucceeded,
  kFailed,
};

/// Of a cluster.
enum class AllocationState { kSteady, kResizing };

enum class NodeState {
  kAllocating,  ///< Asked for, and not yet confirmed.
  kPreparing,   ///< Being set up, or cleaned after a job.
  kIdle,
  kRunning,   ///< Given to an attempt.
  kUnusable,  ///< Its preparation or cleaning failed; its problem says why.
  kLeaving,   ///< Being released, and that not yet confirmed.
  kLost,      ///< Vanished, or out of reach for too long.
};

/// Of one try to run a job. Drivers and nodes know it by its id; to start or to end it again changes nothing.
enum class AttemptState {
  kPlanned,  ///< To be started, and that not yet confirmed.
  kStarted,
  kEnding,  ///< To be ended, and that not yet confirmed.
  kEnded,   ///< Nothing of it runs any more.
};

/// What becomes of the job when an attempt that is being ended has ended.
enum class EndIntent { kNone, kRequeue, kTerminate };

std::string_view name(ProvisioningState state);
std::string_view name(ExecutionState state);
std::string_view name(AllocationState state);
std::string_view name(NodeState state);
std::string_view name(AttemptState state);
std::string_view name(EndIntent intent);

bool may_change(ProvisioningState from, ProvisioningState to);
bool may_change(ExecutionState from, ExecutionState to);
bool may_change(AllocationState from, AllocationState to);
bool may_change(NodeState from, NodeState to);
bool may_change(AttemptState from, AttemptState to);

/// Whether nothing happens to a job in this state by itself: it is deleted, or, where it failed, queued again by hand.
inline bool is_finished(ExecutionState state) {
  return state == ExecutionState::kSucceeded || state == ExecutionState::kFailed;
}

/// The state of that name. Error(kInvalidArgument) when there is none. Defined for the enums above.
template <typename State>
State state_named(std::string_view text);
/// All of them. Defined for the enums above.
template <typename State>
std::vector<std::string_view> state_names();

}  // namespace gyre::jobs::resources
