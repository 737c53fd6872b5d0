#include "gyre/jobs/scheduler/internal/pass.h"

#include <fmt/format.h>

#include <algorithm>

#include "gyre/jobs/scheduler/internal/sizing.h"
#include "gyre/jobs/scheduler/internal/words.h"

namespace gyre::jobs::scheduler {
namespace {

template <typename Value, typename Key>
std::vector<const Value*> sorted(const std::vector<Value>& values, Key key) {
  std::vector<const Value*> order;
  order.reserve(values.size());
  for (const Value& value : values) order.push_back(&value);
  std::ranges::sort(order, {}, [&](const Value* value) { return key(*value); });
  return order;
}

}  // namespace

bool can_ever_start(const Ledger& ledger, const Job& job) {
  const Cluster* cluster = ledger.cluster(job.cluster);
  if (cluster == nullptr || job.node_count > largest_node_count(*cluster)) return false;
  const Demand demand = ledger.demand_of(job);
  return !demand.quota || demand.cores <= ledger.state().quotas[*demand.quota].cores;
}

Pass::Pass(const State& state, const Line& line, Extent extent) : state_(state), ledger_(state, line) {
  look_after_running_jobs();
  for (const Cluster* cluster : sorted(state.clusters, [](const Cluster& one) { return one.id; })) {
    resize(ledger_, *cluster, decisions_);
  }
  go_along_line(line, extent);
}

void Pass::go_along_line(const Line& line, Extent extent) {
  struct Cursor {
    const std::pair<const Line::Key, Lane>* lane;
    std::map<Place, Job>::const_iterator next;
  };
  std::multimap<Place, Cursor> cursors;  // By the place of the next job of each lane.
  for (const auto& lane : line.lanes()) {
    const auto first = lane.second.jobs().begin();
    cursors.emplace(first->first, Cursor{&lane, first});
  }
  while (!cursors.empty()) {
    Cursor cursor = cursors.extract(cursors.begin()).mapped();
    const auto& [key, lane] = *cursor.lane;
    place(cursor.next->second);
    if (++cursor.next == lane.jobs().end() || (extent == Extent::kDecisions && is_done(key, lane))) continue;
    cursors.emplace(cursor.next->first, cursor);
  }
}

bool Pass::is_done(const Line::Key& key, const Lane& lane) const {
  const Job smallest = {.workspace = key.second, .cluster = key.first, .node_count = lane.smallest()};
  if (!can_ever_start(ledger_, smallest)) return true;
  if (!clusters_waited_for_.contains(key.first)) return false;
  const Demand demand = ledger_.demand_of(smallest);
  return !ledger_.fits_now(demand) && (!demand.quota || quotas_waited_for_.contains(*demand.quota));
}

void Pass::look_after_running_jobs() {
  std::set<NodeId> alive;
  for (const Node& node : state_.nodes) {
    if (node.state != NodeReadiness::kLost) alive.insert(node.id);
  }
  for (const RunningJob* running : sorted(state_.running, [](const RunningJob& one) { return one.job.sequence; })) {
    if (!running->ending) end_if_necessary(*running, alive);
  }
}

void Pass::end_if_necessary(const RunningJob& running, const std::set<NodeId>& alive) {
  const Job& job = running.job;
  const auto lost = std::ranges::find_if_not(running.nodes, [&](NodeId node) { return alive.contains(node); });
  Decision decision{.action = TerminateJob{job.id, job.attempts}};
  if (ledger_.cluster(job.cluster) == nullptr) {
    decision.reason = Reason::kClusterIsGone;
    decision.why = "its cluster does not exist any more";
  } else if (state_.now - running.started >= job.wall_clock_limit) {
    decision.reason = Reason::kWallClockLimit;
    decision.why = fmt::format("it reached its wall-clock limit of {}", duration_text(job.wall_clock_limit));
  } else if (lost == running.nodes.end()) {
    return;
  } else if (job.max_attempts > 0 && job.attempts >= job.max_attempts) {
    decision.reason = Reason::kAttemptsUsedUp;
    decision.why = fmt::format("node {} was lost in the last of {}", *lost, counted(job.max_attempts, "attempt"));
  } else {
    decision.action = RequeueJob{job.id, job.attempts};
    decision.reason = Reason::kNodeLost;
    decision.why = fmt::format("node {} was lost", *lost);
  }
  decisions_.push_back(decision);
  ledger_.mark_ending(job.id);
}

void Pass::place(const Job& job) {
  if (!can_ever_start(ledger_, job)) {
    blocked_.push_back({.job = &job});
    return;
  }
  const Demand demand = ledger_.demand_of(job);
  const bool behind = stands_behind(demand);
  const Job* delayed = nullptr;
  if (ledger_.fits_now(demand)) {
    delayed = behind ? delayed_head(demand, state_.now + job.wall_clock_limit) : nullptr;
    if (delayed == nullptr) {
      start(job, demand, behind);
      return;
    }
  }
  keep_waiting(job, demand, delayed, behind);
}

bool Pass::stands_behind(const Demand& demand) const {
  return clusters_waited_for_.contains(demand.cluster) || (demand.quota && quotas_waited_for_.contains(*demand.quota));
}

const Job* Pass::delayed_head(const Demand& demand, Time end) const {
  for (const std::size_t index : heads_) {
    if (could_delay(blocked_[index].reservation, demand, end)) return blocked_[index].job;
  }
  return nullptr;
}

void Pass::start(const Job& job, const Demand& demand, bool backfill) {
  const std::vector<NodeId> nodes = ledger_.take(job.id, demand, state_.now + job.wall_clock_limit);
  const std::string idle = counted(job.node_count, "node is", "nodes are") + " idle";
  decisions_.push_back({.action = StartJob{job.id, job.attempts + 1, nodes},
                        .reason = backfill ? Reason::kBackfill : Reason::kResourcesFree,
                        .why = backfill ? idle + "; jobs ahead of it are not delayed" : idle});
  // What it took and gives back are part of the reservations of the heads.
  for (const std::size_t index : heads_) {
    Reservation& reservation = blocked_[index].reservation;
    const Demand& head = reservation.demand;
    if (demand.shares_nodes(head) || demand.shares_quota(head)) reservation = reserve(ledger_, head);
  }
}

void Pass::keep_waiting(const Job& job, const Demand& demand, const Job* delayed, bool behind) {
  Blocked blocked{.job = &job, .demand = demand, .fits_now = ledger_.fits_now(demand), .is_head = !behind};
  blocked.delayed = delayed;
  if (blocked.is_head) {
    blocked.reservation = reserve(ledger_, demand);
    heads_.push_back(blocked_.size());
  }
  blocked_.push_back(blocked);
  clusters_waited_for_.insert(demand.cluster);
  if (demand.quota) quotas_waited_for_.insert(*demand.quota);
}

}  // namespace gyre::jobs::scheduler
