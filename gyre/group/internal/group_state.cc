#include "gyre/group/internal/group_state.h"

#include <fmt/format.h>

#include <iterator>
#include <utility>
#include <vector>

namespace gyre::group {
namespace {

/// Links that peers have opened and this rank has not asked for yet; a lane needs at most one per rank.
constexpr std::size_t kMostOfferedLinks = 16'384;

}  // namespace

Error peer_left(const Topology& topology, int peer, bool lost) {
  return {ErrorCode::kPeerLeft,
          fmt::format("{} {} while rank {} still needed it", topology.describe(peer), lost ? "died" : "left the group",
                      topology.self().rank_in_job.value_or(topology.rank()))};
}

void GroupState::fail(const Error& reason) {
  const MutexLock lock(mutex_);
  abort_signal_.trigger(reason);
  changed_.notify_all();
}

void GroupState::note(const Exit& exit) {
  if (exit.process_set != 0) return mark_left_subgroup(exit.rank, exit.process_set);
  mark_left(exit.rank, exit.lost);
}

void GroupState::mark_left(int rank, bool lost) {
  const MutexLock lock(mutex_);
  if (!exited_.mark(rank, lost)) return;
  abort_signal_.wake_waiters();
  changed_.notify_all();
}

void GroupState::mark_left_subgroup(int rank, std::uint64_t subgroup) {
  const MutexLock lock(mutex_);
  if (!subgroup_exits_.of(subgroup)->mark(rank)) return;
  abort_signal_.wake_waiters();
  changed_.notify_all();
}

std::shared_ptr<const ExitedRanks> GroupState::subgroup_exits(std::uint64_t subgroup) {
  const MutexLock lock(mutex_);
  return subgroup_exits_.of(subgroup);
}

void GroupState::offer_link(const LinkKey& key, LinkConnection connection) {
  std::shared_ptr<const Sink> sink;
  {
    const MutexLock lock(mutex_);
    const auto found = key.purpose == Purpose::kDirectLink ? sinks_.find(key.channel) : sinks_.end();
    if (found == sinks_.end()) return keep_offered(key, std::move(connection));
    sink = found->second;
  }
  if (*sink) (*sink)(key.rank, std::move(connection));
}

void GroupState::keep_offered(const LinkKey& key, LinkConnection connection) {
  if (offered_links_.size() >= kMostOfferedLinks && !offered_links_.contains(key)) {
    throw Error(ErrorCode::kResourceExhausted,
                fmt::format("{} connections of other ranks wait to be used; no more are taken", kMostOfferedLinks));
  }
  offered_links_[key] = std::move(connection);
  changed_.notify_all();
}

void GroupState::accept(std::uint64_t channel, Sink sink) {
  const auto shared = std::make_shared<const Sink>(std::move(sink));
  std::vector<std::pair<int, LinkConnection>> waiting;
  {
    const MutexLock lock(mutex_);
    sinks_[channel] = shared;
    for (auto entry = offered_links_.begin(); entry != offered_links_.end();) {
      const auto next = std::next(entry);
      if (entry->first.purpose == Purpose::kDirectLink && entry->first.channel == channel) {
        waiting.emplace_back(entry->first.rank, std::move(offered_links_.extract(entry).mapped()));
      }
      entry = next;
    }
  }
  if (!*shared) return;
  for (auto& [rank, connection] : waiting) (*shared)(rank, std::move(connection));
}

LinkConnection GroupState::take_link(const LinkKey& key, const Topology& topology, Deadline deadline) {
  const MutexLock lock(mutex_);
  for (;;) {
    abort_signal_.throw_if_triggered();
    const auto offered = offered_links_.find(key);
    if (offered != offered_links_.end()) return std::move(offered_links_.extract(offered).mapped());
    if (is_gone(key.rank, subgroup_of(key.channel))) throw peer_left(topology, key.rank, was_lost(key.rank));
    if (deadline.passed()) {
      throw Error(
          ErrorCode::kTimeout,
          fmt::format("{} did not open its end of {} channel {} to rank {} in time", topology.describe(key.rank),
                      key.purpose == Purpose::kLink ? "link" : "segment", key.channel, topology.rank()));
    }
    wait(deadline);
  }
}

void GroupState::wait_for_cause(int peer, std::uint64_t subgroup, Deadline deadline) {
  const MutexLock lock(mutex_);
  while (!abort_signal_.triggered() && !is_gone(peer, subgroup) && !deadline.passed()) wait(deadline);
}

void GroupState::finish_farewell() {
  const MutexLock lock(mutex_);
  farewell_finished_ = true;
  changed_.notify_all();
}

void GroupState::wait_for_farewell(Deadline deadline) {
  const MutexLock lock(mutex_);
  while (!farewell_finished_ && !deadline.passed()) wait(deadline);
}

bool GroupState::is_gone(int rank, std::uint64_t subgroup) {
  return has_left(rank) || (subgroup != 0 && subgroup_exits_.of(subgroup)->has_left(rank));
}

void GroupState::wait(Deadline deadline) {
  if (deadline.when()) {
    changed_.wait_until(mutex_, *deadline.when());
  } else {
    changed_.wait(mutex_);
  }
}

}  // namespace gyre::group
