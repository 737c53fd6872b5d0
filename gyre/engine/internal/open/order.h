#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/engine/internal/open/row_counts.h"
#include "gyre/engine/request.h"

// What ranks announce to the coordinator, and what it orders.

namespace gyre::engine::internal {

/// What ranks say they are ready for.
struct Announced {
  std::string name;
  Signature signature;  ///< Of an all-to-all without the splits, of which `rows` tells enough.
  bool transient = false;
  RowCounts rows{};          ///< Of all these ranks together.
  std::vector<int> ranks{};  ///< Ascending; empty: all for which the sender speaks.
};

/// What each rank has announced of an operation; null where it has not.
using Signatures = std::vector<std::shared_ptr<const Signature>>;

/// One operation that every rank has announced, with what the ranks' announcements add up to.
struct OrderedOperation {
  std::string name;
  /// Allgather: rows of each rank; empty if all bring the same number. Otherwise empty.
  std::vector<std::int64_t> sizes;
  bool transient = false;
  /// What ranks that have joined, and so did not announce it, must know to take part. Otherwise empty.
  std::optional<Signature> signature{};
  /// Over how many ranks an average is taken; 0: over all.
  int divisor = 0;
  RowKnowledge rows = RowKnowledge::kKnown;  ///< All-to-all.

  friend bool operator==(const OrderedOperation&, const OrderedOperation&) = default;
};

/// Operations that run as one collective; more than one only for allreduce.
using Bucket = std::vector<OrderedOperation>;

/// Of a refusal because ranks disagree: what its message still lacks. Stays with the coordinator.
struct Disagreement {
  std::vector<int> ranks;  ///< One of each side: the message is to say where their programs are.
  std::string advice;      ///< Ends the message; may be empty.
};

/// An operation that cannot run; it fails with this on every rank that announced it.
struct Refusal {
  std::string name;
  ErrorCode code;
  std::string message;
  std::optional<Disagreement> disagreement{};
};

/// A rank of an all-to-all whose RowKnowledge was kDisputed is sent something else than it expects, and is the first.
/// All ranks have found that; this one announces it, so that the operation is refused.
struct DisputedRows {
  std::string name;
  int sender = 0;
  bool transient = false;  ///< As it was announced.
  std::string message;

  friend bool operator==(const DisputedRows&, const DisputedRows&) = default;
};

/// A step of a plan that ranks have begun; the plan is named by its lane's channel, steps count from 0.
struct PlanStep {
  std::uint64_t plan = 0;
  std::uint64_t step = 0;

  friend bool operator==(const PlanStep&, const PlanStep&) = default;
};

/// Ranks wait for each other in a circle, which leads through these engines of theirs and is proven. See
/// ProcessWaits::keep_report.
struct DeadlockReport {
  std::vector<std::uint64_t> engines;
  std::string text;

  Error error() const { return {ErrorCode::kMismatch, text}; }
  friend bool operator==(const DeadlockReport&, const DeadlockReport&) = default;
};

/// What a rank says when it joins (Engine::begin_join).
struct JoinAnnouncement {
  bool every_operation = false;
  bool divide_by_contributors = false;

  friend bool operator==(const JoinAnnouncement&, const JoinAnnouncement&) = default;
};

/// The next stretch of the total order that all ranks execute alike.
struct Order {
  std::vector<Bucket> buckets;
  std::vector<Refusal> refusals;
  /// Somebody has joined: from here on ranks announce the steps of plans that they begin.
  bool announce_steps = false;
  std::vector<PlanStep> steps;           ///< For those who have joined: take part in these.
  std::optional<int> last_rank_to_join;  ///< All have joined; it was this one, and all are as before.
  std::uint32_t question = 0;            ///< Something stalls: where is every rank? See StallInquiry. 0: no question.
  std::uint64_t engine = 0;              ///< In the first order: how all ranks call this engine, among theirs. Random.
  std::optional<DeadlockReport> deadlock{};  ///< Keep it before answering the question.

  bool empty() const {
    return buckets.empty() && refusals.empty() && steps.empty() && !announce_steps && !last_rank_to_join &&
           question == 0 && engine == 0 && !deadlock;
  }
};

/// How the handle of a join is called among the operations in flight.
constexpr std::string_view kJoinName = "gyre.join";
/// The operations in which ranks compare a plan that they make, before its name.
constexpr std::string_view kPlanProposalName = "gyre.plan.";
constexpr std::string_view kPlanDescriptionName = "gyre.plan.description.";

}  // namespace gyre::engine::internal
