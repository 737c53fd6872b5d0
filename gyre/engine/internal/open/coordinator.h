#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "gyre/base/clock.h"
#include "gyre/base/error.h"
#include "gyre/engine/internal/open/order.h"
#include "gyre/engine/internal/open/waiting_operations.h"
#include "gyre/engine/request.h"

namespace gyre::engine::internal {

/// An operation that some ranks wait for and others have not announced.
struct Stall {
  std::string name;
  OperationKind kind;
  std::chrono::milliseconds waited;
  std::vector<int> ready_ranks;
  std::vector<int> missing_ranks;
  std::uint64_t arrival = 0;  ///< Tells the uses of one name apart.
};

struct CoordinatorOptions {
  int size = 1;
  std::size_t fusion_bytes = 0;
  /// Over which the ranks are spread: decides what may share a bucket because it became ready at the same time.
  int hosts = 1;
  /// How messages call the ranks: their numbers in the job. Empty: by their own.
  std::vector<int> rank_names{};
};

/// Decides what runs next: pure, no I/O, one thread. Ranks announce in any order; an operation is ready when all
/// have announced it; ready operations leave in the order in which they became ready.
///
/// A rank that has joined counts as having announced whatever the others do, until all have joined: it contributes
/// nothing (OrderedOperation::signature tells it how). Steps of plans are negotiated only while somebody has joined.
class Coordinator {
 public:
  explicit Coordinator(const CoordinatorOptions& options)
      : options_(options),
        joined_(static_cast<std::size_t>(options.size)),
        last_announced_(static_cast<std::size_t>(options.size)) {}

  /// `ranks`: who have announced it, ascending; at least one.
  void announce(std::vector<int> ranks, Announced announced, SteadyClock::time_point now);
  void announce(int rank, Announced announced, SteadyClock::time_point now) {
    announce(std::vector{rank}, std::move(announced), now);
  }
  void join(int rank, const JoinAnnouncement& join);
  /// `rank` of an all-to-all that was ordered is sent something else than it expects: it is refused after all.
  void dispute(int rank, DisputedRows disputed);
  /// `rank` has begun a step of a plan.
  void begin_step(int rank, const PlanStep& step);
  /// The rank has left: whatever still needs it is refused, now and later.
  void depart(int rank);

  /// All that became ready (or hopeless) since the last call.
  Order take_order();

  /// Operations that have waited for at least `threshold`.
  std::vector<Stall> stalls(SteadyClock::time_point now, std::chrono::milliseconds threshold) const;
  /// Stall::arrival of the incomplete operation of this name that `rank` has announced; 0: there is none.
  std::uint64_t arrival_of(int rank, const std::string& name) const;
  /// When the oldest incomplete operation was first announced. Constant time.
  std::optional<SteadyClock::time_point> oldest_wait() const { return waiting_.oldest(); }
  /// "all-reduce 'b', 3 s ago": the last thing a rank announced, for the stall report.
  std::string last_announced(int rank, SteadyClock::time_point now) const;

  /// See WaitingOperations.
  std::uint64_t visits() const { return waiting_.visits(); }

 private:
  struct Ready {
    std::string name;
    WaitingOperation waiting;
  };
  struct GroupProgress {
    std::vector<Ready> members;
    std::size_t seen = 0;            // Members complete or refused.
    std::optional<Refusal> refusal;  // Of the first member that was; the others share its fate.
  };
  /// A group whose ranks disagree about its size: some of its members would wait for ever.
  struct SpoiledGroup {
    Refusal refusal;
    std::vector<std::uint32_t> missing;  // By rank: members not announced yet.
  };
  struct LastAnnounced {
    LastAnnounced(std::string given_name, OperationKind given_kind, SteadyClock::time_point now)
        : name(std::move(given_name)), kind(given_kind), when(now) {}
    std::string name;
    OperationKind kind;
    SteadyClock::time_point when;
  };

  /// `signatures`: what the ranks had announced of it.
  void refuse(const Signatures& signatures, const Refusal& refusal);
  void count_in_group(const std::string& group, std::uint32_t group_size, std::optional<Ready> ready,
                      const std::optional<Refusal>& refusal);
  void refuse_if_hopeless(const std::string& name);
  /// Refuses what has been announced of the group; `signatures` are those of its first member to be refused.
  void spoil(const std::string& group, const Signatures& signatures, Refusal refusal);
  /// Refuses what is still announced of a spoiled group. False: it is not of one.
  bool refuse_spoiled(int rank, const Announced& announced);
  bool has_joined(int rank) const { return joined_.at(static_cast<std::size_t>(rank)).has_value(); }
  /// Nobody who has neither announced it nor joined.
  bool is_ready(const WaitingOperation& waiting) const;
  /// What keeps ranks that have joined from taking part in it; empty: nothing.
  std::string impossible_for_joined(const std::string& name, const WaitingOperation& waiting) const;
  void finish_waiting(const std::string& name);
  void complete(Ready ready);
  OrderedOperation make_ordered(const Ready& ready) const;
  int name_of(int rank) const;
  std::vector<int> names_of(const std::vector<int>& ranks) const;

  CoordinatorOptions options_;
  WaitingOperations waiting_;
  std::unordered_map<std::string, GroupProgress> groups_;
  std::unordered_map<std::string, SpoiledGroup> spoiled_;
  std::vector<std::vector<Ready>> ready_;  // Each inner list is fused as one unit if it can be.
  std::vector<Refusal> refusals_;
  std::vector<int> departed_ranks_;
  std::vector<std::optional<JoinAnnouncement>> joined_;
  int joined_count_ = 0;
  bool announce_steps_ = false;
  std::map<std::uint64_t, std::uint64_t> steps_begun_;  // By plan, since somebody joined.
  std::vector<PlanStep> steps_;
  std::optional<int> last_rank_to_join_;
  std::vector<std::shared_ptr<const LastAnnounced>> last_announced_;  // By rank.
};

}  // namespace gyre::engine::internal
