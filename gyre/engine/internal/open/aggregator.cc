#include "gyre/engine/internal/open/aggregator.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "gyre/base/error.h"

namespace gyre::engine::internal {

Aggregator::Aggregator(std::vector<int> ranks)
    : ranks_(std::move(ranks)), joined_(ranks_.size()), departed_(ranks_.size()) {}

std::size_t Aggregator::place_of(int rank) const {
  return static_cast<std::size_t>(std::ranges::lower_bound(ranks_, rank) - ranks_.begin());
}

void Aggregator::take(const NegotiationPlace::Child& child, AnnouncementContent content, SteadyClock::time_point now) {
  check_speaker(child, content);
  for (Announced& announced : content.operations) announce(child, std::move(announced), now);
  for (RelayedNote& relayed : content.relayed) note(relayed.rank, std::move(relayed.note));
  if (!content.RankNote::empty()) note(child.rank, std::move(content));
}

void Aggregator::announce(const NegotiationPlace::Child& child, Announced announced, SteadyClock::time_point now) {
  if (announced.ranks.empty()) announced.ranks = child.ranks;
  const auto [entry, is_new] = operations_.try_emplace(announced.name);
  Operation& operation = entry->second;
  if (is_new) {
    operation.announced.resize(ranks_.size());
    operation.arrival = ++arrivals_;
  }
  if (operation.unsent.empty()) operation.since = now;
  for (const int rank : announced.ranks) {
    const std::size_t place = place_of(rank);
    if (operation.announced[place]) {
      throw Error(ErrorCode::kProtocol, fmt::format("rank {} announced '{}' twice", rank, announced.name));
    }
    operation.announced[place] = true;
  }
  operation.count += announced.ranks.size();
  const auto same = std::ranges::find(operation.unsent, announced.signature, &Announced::signature);
  if (same == operation.unsent.end()) {
    operation.unsent.push_back(std::move(announced));
  } else {
    same->rows += announced.rows;
    same->ranks.insert(same->ranks.end(), announced.ranks.begin(), announced.ranks.end());
  }
  unsent_[operation.arrival] = &*entry;
  if (is_complete(operation)) finish(entry);
}

bool Aggregator::is_complete(const Operation& operation) const {
  if (operation.count == ranks_.size()) return true;
  if (!anybody_absent_) return false;
  for (std::size_t place = 0; place < ranks_.size(); ++place) {
    if (!operation.announced[place] && !joined_[place] && !departed_[place]) return false;
  }
  return true;
}

void Aggregator::send(Operation& operation, std::vector<Announced>& to) {
  const bool of_all = operation.unsent.size() == 1 && operation.unsent.front().ranks.size() == ranks_.size();
  for (Announced& one : operation.unsent) {
    if (of_all) {
      one.ranks.clear();
    } else {
      std::ranges::sort(one.ranks);
    }
    to.push_back(std::move(one));
  }
  operation.unsent.clear();
  unsent_.erase(operation.arrival);
}

void Aggregator::finish(ByName::iterator entry) {
  send(entry->second, complete_);
  operations_.erase(entry);
}

void Aggregator::note(int rank, RankNote note) {
  if (note.join || note.leaving) {
    (note.leaving ? departed_ : joined_)[place_of(rank)] = true;
    anybody_absent_ = true;
    for (auto entry = operations_.begin(); entry != operations_.end();) {
      const auto next = std::next(entry);
      if (!entry->second.unsent.empty() && is_complete(entry->second)) finish(entry);
      entry = next;
    }
  }
  notes_.push_back({rank, std::move(note)});
}

void Aggregator::forget(const std::string& name) {
  const auto entry = operations_.find(name);
  if (entry == operations_.end()) return;
  unsent_.erase(entry->second.arrival);
  operations_.erase(entry);
}

void Aggregator::obey(const Order& order) {
  for (const Bucket& bucket : order.buckets) {
    for (const OrderedOperation& operation : bucket) forget(operation.name);
  }
  bool join_has_ended = order.last_rank_to_join.has_value();
  for (const Refusal& refusal : order.refusals) {
    forget(refusal.name);
    join_has_ended |= refusal.name == kJoinName;
  }
  if (!join_has_ended) return;
  joined_.assign(joined_.size(), false);
  anybody_absent_ = std::ranges::find(departed_, true) != departed_.end();
}

std::optional<AnnouncementContent> Aggregator::next_announcement(SteadyClock::time_point now) {
  AnnouncementContent content;
  const auto deadline = next_deadline();
  if (!notes_.empty() || (deadline && now >= *deadline)) {
    while (!unsent_.empty()) send(unsent_.begin()->second->second, content.operations);
  }
  content.operations.insert(content.operations.end(), std::make_move_iterator(complete_.begin()),
                            std::make_move_iterator(complete_.end()));
  complete_.clear();
  content.relayed = std::exchange(notes_, {});
  if (content.operations.empty() && content.relayed.empty()) return std::nullopt;
  return content;
}

std::optional<SteadyClock::time_point> Aggregator::next_deadline() const {
  // The oldest use of a name need not have waited longest with what is unsent, but about as long.
  if (unsent_.empty()) return std::nullopt;
  return unsent_.begin()->second->second.since + kPatience;
}

void check_speaker(const NegotiationPlace::Child& child, const AnnouncementContent& content) {
  const auto speaks_for = [&](int rank) { return std::ranges::binary_search(child.ranks, rank); };
  const auto refuse = [&](int rank) {
    throw Error(ErrorCode::kProtocol, fmt::format("rank {} does not speak for rank {}", child.rank, rank));
  };
  for (const Announced& announced : content.operations) {
    for (const int rank : announced.ranks) {
      if (!speaks_for(rank)) refuse(rank);
    }
  }
  for (const RelayedNote& relayed : content.relayed) {
    if (!speaks_for(relayed.rank)) refuse(relayed.rank);
  }
}

}  // namespace gyre::engine::internal
