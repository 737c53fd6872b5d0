#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "gyre/jobs/scheduler/state.h"

namespace gyre::jobs::scheduler {

// What a service that starts, or that hears from a node again, has to do so that the world becomes what was intended.
// Both sides are plain values: what the catalog holds, and what drivers and node programs report.

/// Of an attempt, as it was written down.
enum class IntendedPhase {
  kPlanned,  ///< To be started; perhaps it was.
  kStarted,
  kEnding,  ///< To be ended; perhaps it was.
};

struct IntendedAttempt {
  std::string id{};
  IntendedPhase phase = IntendedPhase::kPlanned;
  std::vector<NodeId> nodes{};
};

enum class IntendedNodePhase {
  kAllocating,  ///< To be allocated; perhaps it was.
  kPresent,
  kLeaving,  ///< To be released; perhaps it was.
};

struct IntendedNode {
  NodeId id = 0;
  IntendedNodePhase phase = IntendedNodePhase::kPresent;
};

struct Intended {
  std::vector<IntendedAttempt> attempts{};  ///< That have not ended.
  std::vector<IntendedNode> nodes{};
};

/// What a node program says of an attempt.
struct ReportedAttempt {
  std::string id{};
  bool runs = false;  ///< Otherwise it has ended there, and the node program keeps the record.
};

/// A node that a driver knows of.
struct ReportedNode {
  NodeId id = 0;
  /// Whether its node program answered; `attempts` is complete then. Otherwise they are unknown, unless
  /// `lease_is_over`: then its ranks are gone.
  bool program_answers = true;
  bool lease_is_over = false;
  std::vector<ReportedAttempt> attempts{};
};

struct Reported {
  std::vector<ReportedNode> nodes{};
  /// Whether every driver answered: a node that is not listed does not exist.
  bool complete = true;
};

/// Start it on all of its nodes; those where it runs already know it by its id.
struct StartAttempt {
  std::string id{};
  bool operator==(const StartAttempt&) const = default;
};
/// It runs on all of its nodes.
struct ConfirmStart {
  std::string id{};
  bool operator==(const ConfirmStart&) const = default;
};
/// End what runs of it on this node. It may be an attempt that nobody intends any more.
struct EndAttemptOnNode {
  std::string id{};
  NodeId node = 0;
  bool operator==(const EndAttemptOnNode&) const = default;
};
/// Nothing of it runs any more.
struct ConfirmEnd {
  std::string id{};
  /// Where a record of its end can be had; unset: no node has one, it was lost, or ended before it began.
  std::optional<NodeId> record{};
  bool operator==(const ConfirmEnd&) const = default;
};
/// The record of an attempt that is over and accounted for may be deleted on this node.
struct ForgetRecord {
  std::string id{};
  NodeId node = 0;
  bool operator==(const ForgetRecord&) const = default;
};
struct AllocateNode {
  NodeId node = 0;
  bool operator==(const AllocateNode&) const = default;
};
struct ConfirmAllocation {
  NodeId node = 0;
  bool operator==(const ConfirmAllocation&) const = default;
};
/// Also of a node that nobody intends any more.
struct ReleaseNodeAgain {
  NodeId node = 0;
  bool operator==(const ReleaseNodeAgain&) const = default;
};
struct ConfirmRelease {
  NodeId node = 0;
  bool operator==(const ConfirmRelease&) const = default;
};
/// It vanished, or its lease is over.
struct MarkNodeLost {
  NodeId node = 0;
  bool operator==(const MarkNodeLost&) const = default;
};

using Reconciliation = std::variant<StartAttempt, ConfirmStart, EndAttemptOnNode, ConfirmEnd, ForgetRecord,
                                    AllocateNode, ConfirmAllocation, ReleaseNodeAgain, ConfirmRelease, MarkNodeLost>;

/// What to do next. Pure; every action may be carried out again without any effect, so that it may be asked again at
/// any time with newer reports. What a node program that does not answer, and whose lease is not over, may be doing is
/// waited for: its attempts are neither started nor confirmed as ended.
std::vector<Reconciliation> reconcile(const Intended& intended, const Reported& reported);

}  // namespace gyre::jobs::scheduler
