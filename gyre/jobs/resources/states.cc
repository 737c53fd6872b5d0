#include "gyre/jobs/resources/states.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "gyre/base/error.h"

namespace gyre::jobs::resources {
namespace {

template <typename State>
using Names = std::span<const std::pair<State, std::string_view>>;
template <typename State>
using Changes = std::span<const std::pair<State, State>>;

constexpr std::array kProvisioningNames = std::to_array<std::pair<ProvisioningState, std::string_view>>({
    {ProvisioningState::kCreating, "creating"},
    {ProvisioningState::kSucceeded, "succeeded"},
    {ProvisioningState::kFailed, "failed"},
    {ProvisioningState::kDeleting, "deleting"},
});
constexpr std::array kProvisioningChanges = std::to_array<std::pair<ProvisioningState, ProvisioningState>>({
    {ProvisioningState::kCreating, ProvisioningState::kSucceeded},
    {ProvisioningState::kCreating, ProvisioningState::kFailed},
    {ProvisioningState::kCreating, ProvisioningState::kDeleting},
    {ProvisioningState::kSucceeded, ProvisioningState::kDeleting},
    {ProvisioningState::kFailed, ProvisioningState::kDeleting},
});

constexpr std::array kExecutionNames = std::to_array<std::pair<ExecutionState, std::string_view>>({
    {ExecutionState::kQueued, "queued"},
    {ExecutionState::kRunning, "running"},
    {ExecutionState::kTerminating, "terminating"},
    {ExecutionState::kSucceeded, "succeeded"},
    {ExecutionState::kFailed, "failed"},
});
constexpr std::array kExecutionChanges = std::to_array<std::pair<ExecutionState, ExecutionState>>({
    {ExecutionState::kQueued, ExecutionState::kRunning},
    // An attempt that is planned must be ended first, although nothing of it may run yet.
    {ExecutionState::kQueued, ExecutionState::kTerminating},
    {ExecutionState::kQueued, ExecutionState::kFailed},
    // Requeued.
    {ExecutionState::kRunning, ExecutionState::kQueued},
    {ExecutionState::kRunning, ExecutionState::kTerminating},
    {ExecutionState::kRunning, ExecutionState::kSucceeded},
    {ExecutionState::kRunning, ExecutionState::kFailed},
    // It had ended by itself before the request reached it.
    {ExecutionState::kTerminating, ExecutionState::kSucceeded},
    {ExecutionState::kTerminating, ExecutionState::kFailed},
    // Somebody wants it to be tried again.
    {ExecutionState::kFailed, ExecutionState::kQueued},
});

constexpr std::array kAllocationNames = std::to_array<std::pair<AllocationState, std::string_view>>({
    {AllocationState::kSteady, "steady"},
    {AllocationState::kResizing, "resizing"},
});
constexpr std::array kAllocationChanges = std::to_array<std::pair<AllocationState, AllocationState>>({
    {AllocationState::kSteady, AllocationState::kResizing},
    {AllocationState::kResizing, AllocationState::kSteady},
});

constexpr std::array kNodeNames = std::to_array<std::pair<NodeState, std::string_view>>({
    {NodeState::kAllocating, "allocating"},
    {NodeState::kPreparing, "preparing"},
    {NodeState::kIdle, "idle"},
    {NodeState::kRunning, "running"},
    {NodeState::kUnusable, "unusable"},
    {NodeState::kLeaving, "leaving"},
    {NodeState::kLost, "lost"},
});
constexpr std::array kNodeChanges = std::to_array<std::pair<NodeState, NodeState>>({
    {NodeState::kAllocating, NodeState::kPreparing},
    {NodeState::kAllocating, NodeState::kUnusable},
    {NodeState::kAllocating, NodeState::kLeaving},
    {NodeState::kAllocating, NodeState::kLost},
    {NodeState::kPreparing, NodeState::kIdle},
    {NodeState::kPreparing, NodeState::kUnusable},
    {NodeState::kPreparing, NodeState::kLeaving},
    {NodeState::kPreparing, NodeState::kLost},
    {NodeState::kIdle, NodeState::kRunning},
    // It restarted, and is set up again.
    {NodeState::kIdle, NodeState::kPreparing},
    {NodeState::kIdle, NodeState::kUnusable},
    {NodeState::kIdle, NodeState::kLeaving},
    {NodeState::kIdle, NodeState::kLost},
    // Its attempt has ended; now it is cleaned. A node with an attempt never leaves.
    {NodeState::kRunning, NodeState::kPreparing},
    {NodeState::kRunning, NodeState::kLost},
    {NodeState::kUnusable, NodeState::kPreparing},
    {NodeState::kUnusable, NodeState::kLeaving},
    {NodeState::kUnusable, NodeState::kLost},
    {NodeState::kLeaving, NodeState::kLost},
    // It came back.
    {NodeState::kLost, NodeState::kPreparing},
    {NodeState::kLost, NodeState::kLeaving},
});

constexpr std::array kAttemptNames = std::to_array<std::pair<AttemptState, std::string_view>>({
    {AttemptState::kPlanned, "planned"},
    {AttemptState::kStarted, "started"},
    {AttemptState::kEnding, "ending"},
    {AttemptState::kEnded, "ended"},
});
constexpr std::array kAttemptChanges = std::to_array<std::pair<AttemptState, AttemptState>>({
    {AttemptState::kPlanned, AttemptState::kStarted},
    {AttemptState::kPlanned, AttemptState::kEnding},
    // It could not be started.
    {AttemptState::kPlanned, AttemptState::kEnded},
    {AttemptState::kStarted, AttemptState::kEnding},
    {AttemptState::kStarted, AttemptState::kEnded},
    {AttemptState::kEnding, AttemptState::kEnded},
});

constexpr std::array kIntentNames = std::to_array<std::pair<EndIntent, std::string_view>>({
    {EndIntent::kNone, "none"},
    {EndIntent::kRequeue, "requeue"},
    {EndIntent::kTerminate, "terminate"},
});

Names<ProvisioningState> names_of(ProvisioningState /*tag*/) { return kProvisioningNames; }
Names<ExecutionState> names_of(ExecutionState /*tag*/) { return kExecutionNames; }
Names<AllocationState> names_of(AllocationState /*tag*/) { return kAllocationNames; }
Names<NodeState> names_of(NodeState /*tag*/) { return kNodeNames; }
Names<AttemptState> names_of(AttemptState /*tag*/) { return kAttemptNames; }
Names<EndIntent> names_of(EndIntent /*tag*/) { return kIntentNames; }

template <typename State>
std::string_view name_in(Names<State> names, State state) {
  const auto found = std::ranges::find(names, state, &std::pair<State, std::string_view>::first);
  return found == names.end() ? "unknown" : found->second;
}

template <typename State>
bool contains(Changes<State> changes, State from, State to) {
  return std::ranges::find(changes, std::pair(from, to)) != changes.end();
}

}  // namespace

std::string_view name(ProvisioningState state) { return name_in(names_of(state), state); }
std::string_view name(ExecutionState state) { return name_in(names_of(state), state); }
std::string_view name(AllocationState state) { return name_in(names_of(state), state); }
std::string_view name(NodeState state) { return name_in(names_of(state), state); }
std::string_view name(AttemptState state) { return name_in(names_of(state), state); }
std::string_view name(EndIntent intent) { return name_in(names_of(intent), intent); }

bool may_change(ProvisioningState from, ProvisioningState to) {
  return contains<ProvisioningState>(kProvisioningChanges, from, to);
}
bool may_change(ExecutionState from, ExecutionState to) {
  return contains<ExecutionState>(kExecutionChanges, from, to);
}
bool may_change(AllocationState from, AllocationState to) {
  return contains<AllocationState>(kAllocationChanges, from, to);
}
bool may_change(NodeState from, NodeState to) { return contains<NodeState>(kNodeChanges, from, to); }
bool may_change(AttemptState from, AttemptState to) { return contains<AttemptState>(kAttemptChanges, from, to); }

template <typename State>
State state_named(std::string_view text) {
  for (const auto& [state, known] : names_of(State{})) {
    if (known == text) return state;
  }
  throw Error(ErrorCode::kInvalidArgument, fmt::format("'{}' is not the name of a state", text));
}

template <typename State>
std::vector<std::string_view> state_names() {
  std::vector<std::string_view> all;
  for (const auto& [state, known] : names_of(State{})) all.push_back(known);
  return all;
}

template ProvisioningState state_named<ProvisioningState>(std::string_view text);
template ExecutionState state_named<ExecutionState>(std::string_view text);
template AllocationState state_named<AllocationState>(std::string_view text);
template NodeState state_named<NodeState>(std::string_view text);
template AttemptState state_named<AttemptState>(std::string_view text);
template EndIntent state_named<EndIntent>(std::string_view text);
template std::vector<std::string_view> state_names<ProvisioningState>();
template std::vector<std::string_view> state_names<ExecutionState>();
template std::vector<std::string_view> state_names<AllocationState>();
template std::vector<std::string_view> state_names<NodeState>();
template std::vector<std::string_view> state_names<AttemptState>();
template std::vector<std::string_view> state_names<EndIntent>();

}  // namespace gyre::jobs::resources
