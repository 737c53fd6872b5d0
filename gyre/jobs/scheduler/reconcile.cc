#include "gyre/jobs/scheduler/reconcile.h"

#include <algorithm>
#include <map>

namespace gyre::jobs::scheduler {
namespace {

/// What is known of one attempt on one of its nodes.
enum class Sight {
  kUnknown,  ///< The node program does not answer and may be at work.
  kAbsent,   ///< The node program has never heard of it.
  kRuns,
  kEnded,
  kGone,  ///< The node does not exist any more, or its lease is over.
};

class Reconciler {
 public:
  Reconciler(const Intended& intended, const Reported& reported) : intended_(intended), reported_(reported) {
    for (const ReportedNode& node : reported.nodes) nodes_[node.id] = &node;
  }

  std::vector<Reconciliation> actions() {
    for (const IntendedNode& node : intended_.nodes) follow_node(node);
    for (const ReportedNode& node : reported_.nodes) {
      const bool wanted = std::ranges::find(intended_.nodes, node.id, &IntendedNode::id) != intended_.nodes.end();
      if (!wanted) actions_.emplace_back(ReleaseNodeAgain{node.id});
    }
    for (const IntendedAttempt& attempt : intended_.attempts) follow_attempt(attempt);
    for (const ReportedNode& node : reported_.nodes) clear_away(node);
    return std::move(actions_);
  }

 private:
  void follow_node(const IntendedNode& node) {
    const auto found = nodes_.find(node.id);
    const bool exists = found != nodes_.end();
    if (!exists && !reported_.complete) return;
    switch (node.phase) {
      case IntendedNodePhase::kAllocating:
        actions_.push_back(exists ? Reconciliation(ConfirmAllocation{node.id}) : AllocateNode{node.id});
        break;
      case IntendedNodePhase::kLeaving:
        actions_.push_back(exists ? Reconciliation(ReleaseNodeAgain{node.id}) : ConfirmRelease{node.id});
        break;
      case IntendedNodePhase::kPresent:
        if (!exists || (!found->second->program_answers && found->second->lease_is_over)) {
          actions_.emplace_back(MarkNodeLost{node.id});
        }
        break;
    }
  }

  Sight sight_of(const IntendedAttempt& attempt, NodeId id) const {
    const auto found = nodes_.find(id);
    if (found == nodes_.end()) return reported_.complete ? Sight::kGone : Sight::kUnknown;
    const ReportedNode& node = *found->second;
    if (!node.program_answers) return node.lease_is_over ? Sight::kGone : Sight::kUnknown;
    const auto known = std::ranges::find(node.attempts, attempt.id, &ReportedAttempt::id);
    if (known == node.attempts.end()) return Sight::kAbsent;
    return known->runs ? Sight::kRuns : Sight::kEnded;
  }

  void follow_attempt(const IntendedAttempt& attempt) {
    std::map<Sight, int> count;
    for (const NodeId node : attempt.nodes) ++count[sight_of(attempt, node)];
    const auto all = static_cast<int>(attempt.nodes.size());
    // A node that has never heard of an attempt which is over elsewhere, or had started, was restarted: its ranks are
    // gone.
    const bool torn =
        count[Sight::kAbsent] > 0 && (attempt.phase == IntendedPhase::kStarted || count[Sight::kEnded] > 0);
    // Ranks of several nodes may end minutes apart, so the first end alone says nothing.
    const bool over =
        attempt.phase == IntendedPhase::kEnding || count[Sight::kGone] > 0 || torn || count[Sight::kEnded] == all;
    if (over) {
      end(attempt, count);
    } else if (attempt.phase == IntendedPhase::kPlanned && count[Sight::kUnknown] == 0) {
      const bool everywhere = count[Sight::kAbsent] == 0;
      actions_.push_back(everywhere ? Reconciliation(ConfirmStart{attempt.id}) : StartAttempt{attempt.id});
    }
  }

  void end(const IntendedAttempt& attempt, std::map<Sight, int>& count) {
    for (const NodeId node : attempt.nodes) {
      if (sight_of(attempt, node) == Sight::kRuns) actions_.emplace_back(EndAttemptOnNode{attempt.id, node});
    }
    if (count[Sight::kRuns] > 0 || count[Sight::kUnknown] > 0) return;
    ConfirmEnd confirmation{.id = attempt.id};
    const auto record =
        std::ranges::find_if(attempt.nodes, [&](NodeId node) { return sight_of(attempt, node) == Sight::kEnded; });
    if (record != attempt.nodes.end()) confirmation.record = *record;
    actions_.emplace_back(confirmation);
  }

  /// What the node has of attempts that are not, or no longer, intended there.
  void clear_away(const ReportedNode& node) {
    if (!node.program_answers) return;
    for (const ReportedAttempt& reported : node.attempts) {
      const auto wanted = std::ranges::find_if(intended_.attempts, [&](const IntendedAttempt& attempt) {
        return attempt.id == reported.id && std::ranges::find(attempt.nodes, node.id) != attempt.nodes.end();
      });
      if (wanted != intended_.attempts.end()) continue;
      actions_.push_back(reported.runs ? Reconciliation(EndAttemptOnNode{reported.id, node.id})
                                       : ForgetRecord{reported.id, node.id});
    }
  }

  const Intended& intended_;
  const Reported& reported_;
  std::map<NodeId, const ReportedNode*> nodes_;
  std::vector<Reconciliation> actions_;
};

}  // namespace

std::vector<Reconciliation> reconcile(const Intended& intended, const Reported& reported) {
  return Reconciler(intended, reported).actions();
}

}  // namespace gyre::jobs::scheduler
