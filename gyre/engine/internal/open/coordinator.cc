#include "gyre/engine/internal/open/coordinator.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

#include "gyre/engine/internal/failure.h"
#include "gyre/engine/internal/open/fusion.h"
#include "gyre/engine/internal/open/mismatch.h"
#include "gyre/engine/internal/open/signature_check.h"

namespace gyre::engine::internal {

namespace {

const Signature& first_signature(const Signatures& signatures) {
  return **std::find_if(signatures.begin(), signatures.end(), [](const auto& one) { return one != nullptr; });
}

/// What may have made ranks disagree about an operation whose name tells only which call it is.
constexpr const char* kNumberedAdvice =
    "Probably a collective is called on some ranks only (inside `if rank == 0:`, say), or some ranks have fewer "
    "batches, "
    "so that it meets another call of the other ranks: call every collective on all ranks, in the same order, and give "
    "all ranks the same number of batches (or see join())";

/// `refusal` for another member of its group.
Refusal of_member(const std::string& name, const Refusal& refusal, const std::string& message) {
  return {name, refusal.code, message, refusal.disagreement};
}

}  // namespace

void Coordinator::announce(std::vector<int> ranks, Announced announced, SteadyClock::time_point now) {
  check_announced(announced, ranks, options_.size);
  const auto last = std::make_shared<const LastAnnounced>(announced.name, announced.signature.kind, now);
  for (const int rank : ranks) last_announced_.at(static_cast<std::size_t>(rank)) = last;
  if (!spoiled_.empty()) std::erase_if(ranks, [&](int rank) { return refuse_spoiled(rank, announced); });
  if (ranks.empty()) return;
  WaitingOperation& waiting = waiting_.find_or_add(announced.name, options_.size, now);
  const auto signature = std::make_shared<const Signature>(std::move(announced.signature));
  for (const int rank : ranks) {
    auto& slot = waiting.signatures[static_cast<std::size_t>(rank)];
    if (slot) throw Error(ErrorCode::kProtocol, fmt::format("rank {} announced '{}' twice", rank, announced.name));
    slot = signature;
  }
  waiting.transient = announced.transient;
  waiting.rows += announced.rows;
  waiting.count += static_cast<int>(ranks.size());
  const std::string name = std::move(announced.name);
  if (is_ready(waiting)) {
    finish_waiting(name);
  } else {
    refuse_if_hopeless(name);
  }
}

bool Coordinator::is_ready(const WaitingOperation& waiting) const {
  if (joined_count_ == 0) return waiting.count == options_.size;
  for (int rank = 0; rank < options_.size; ++rank) {
    if (!waiting.signatures[static_cast<std::size_t>(rank)] && !has_joined(rank)) return false;
  }
  return true;
}

std::string Coordinator::impossible_for_joined(const std::string& name, const WaitingOperation& waiting) const {
  const Signature& signature = first_signature(waiting.signatures);
  for (int rank = 0; rank < options_.size; ++rank) {
    if (waiting.signatures[static_cast<std::size_t>(rank)]) continue;
    const bool is_root = signature.kind == OperationKind::kBroadcast && signature.root == rank;
    const bool always = signature.kind == OperationKind::kAllreduce || signature.kind == OperationKind::kBarrier;
    if (is_root || (!always && !joined_[static_cast<std::size_t>(rank)]->every_operation)) {
      return fmt::format("{} cannot run: rank {} has joined and takes part only in {}{}",
                         describe_operation(signature.kind, name), name_of(rank),
                         is_root ? "what needs nothing from it, and it is the root" : "allreduce and barrier",
                         is_root ? "" : "; with join(every_operation=True) it takes part in all");
    }
  }
  return {};
}

void Coordinator::finish_waiting(const std::string& name) {
  Ready ready{name, waiting_.take(name)};
  ready.waiting.by_contributors = std::any_of(
      joined_.begin(), joined_.end(), [](const auto& one) { return one.has_value() && one->divide_by_contributors; });
  const auto& signatures = ready.waiting.signatures;
  if (auto mismatch = find_mismatch(name, signatures, options_.rank_names)) {
    Refusal refusal{name, ErrorCode::kMismatch, std::move(mismatch->message)};
    // A rank whose call has raised shows its line by itself, and is about to end.
    const bool raised = std::ranges::any_of(signatures, [](const auto& one) { return one && one->withdrawn(); });
    if (!raised) refusal.disagreement = {std::move(mismatch->ranks), ready.waiting.transient ? kNumberedAdvice : ""};
    refuse(signatures, refusal);
  } else if (std::string message = impossible_for_joined(name, ready.waiting); !message.empty()) {
    refuse(signatures, {name, ErrorCode::kUnsupported, std::move(message)});
  } else {
    complete(std::move(ready));
  }
}

void Coordinator::join(int rank, const JoinAnnouncement& join) {
  if (has_joined(rank)) throw Error(ErrorCode::kProtocol, fmt::format("rank {} joined twice", rank));
  if (!departed_ranks_.empty()) {
    refusals_.push_back({std::string(kJoinName), ErrorCode::kPeerLeft,
                         fmt::format("join can never complete: rank {} has shut down without joining",
                                     name_of(departed_ranks_.front()))});
    return;
  }
  joined_[static_cast<std::size_t>(rank)] = join;
  ++joined_count_;
  std::vector<std::string> ready;
  waiting_.for_each([&](const std::string& name, const WaitingOperation& waiting) {
    if (is_ready(waiting)) ready.push_back(name);
  });
  for (const std::string& name : ready) {
    if (waiting_.find(name) != nullptr) finish_waiting(name);  // Not if it was in a group that another one has spoiled.
  }
  announce_steps_ = true;
  if (joined_count_ == options_.size) {
    last_rank_to_join_ = rank;
    joined_.assign(joined_.size(), std::nullopt);
    joined_count_ = 0;
    steps_begun_.clear();
    announce_steps_ = false;
  }
}

void Coordinator::dispute(int rank, DisputedRows disputed) {
  if (disputed.sender < 0 || disputed.sender >= options_.size) {
    throw Error(ErrorCode::kProtocol, fmt::format("rank {} expects rows from rank {}", rank, disputed.sender));
  }
  refusals_.push_back({std::move(disputed.name), ErrorCode::kMismatch, std::move(disputed.message),
                       Disagreement{{disputed.sender, rank}, disputed.transient ? kNumberedAdvice : ""}});
}

void Coordinator::begin_step(int rank, const PlanStep& step) {
  // Said before the news that all have joined arrived there; or by a rank that only follows.
  if (joined_count_ == 0 || has_joined(rank)) return;
  const auto [known, is_new] = steps_begun_.try_emplace(step.plan, step.step);
  if (!is_new && known->second >= step.step) return;
  known->second = step.step;
  steps_.push_back(step);
}

int Coordinator::name_of(int rank) const {
  return options_.rank_names.empty() ? rank : options_.rank_names.at(static_cast<std::size_t>(rank));
}

std::vector<int> Coordinator::names_of(const std::vector<int>& ranks) const {
  std::vector<int> names;
  for (const int rank : ranks) names.push_back(name_of(rank));
  return names;
}

void Coordinator::complete(Ready ready) {
  const Signature signature = first_signature(ready.waiting.signatures);
  if (!signature.group.empty()) {
    count_in_group(signature.group, signature.group_size, std::move(ready), std::nullopt);
    return;
  }
  ready_.emplace_back();
  ready_.back().push_back(std::move(ready));
}

void Coordinator::count_in_group(const std::string& group, std::uint32_t group_size, std::optional<Ready> ready,
                                 const std::optional<Refusal>& refusal) {
  GroupProgress& progress = groups_[group];
  ++progress.seen;
  if (ready) progress.members.push_back(std::move(*ready));
  if (refusal && !progress.refusal) progress.refusal = refusal;
  if (progress.refusal) {
    for (const Ready& member : progress.members) {
      refusals_.push_back(of_member(member.name, *progress.refusal,
                                    fmt::format("group '{}' fails as a whole: {}", group, progress.refusal->message)));
    }
    progress.members.clear();
  }
  if (progress.seen < group_size) return;
  auto members = std::move(progress.members);
  groups_.erase(group);
  if (members.empty()) return;
  std::sort(members.begin(), members.end(),
            [](const Ready& a, const Ready& b) { return a.waiting.arrival < b.waiting.arrival; });
  ready_.push_back(std::move(members));
}

void Coordinator::depart(int rank) {
  departed_ranks_.push_back(rank);
  std::vector<std::string> names;
  waiting_.for_each([&](const std::string& name, const WaitingOperation&) { names.push_back(name); });
  for (const std::string& name : names) refuse_if_hopeless(name);
  if (joined_count_ == 0) return;
  joined_.assign(joined_.size(), std::nullopt);
  joined_count_ = 0;
  refusals_.push_back({std::string(kJoinName), ErrorCode::kPeerLeft,
                       fmt::format("join can never complete: rank {} has shut down without joining", name_of(rank))});
}

void Coordinator::refuse_if_hopeless(const std::string& name) {
  const WaitingOperation* found = waiting_.find(name);
  if (found == nullptr) return;
  const WaitingOperation& waiting = *found;
  for (const int rank : departed_ranks_) {
    if (waiting.signatures[static_cast<std::size_t>(rank)]) continue;
    std::vector<int> ready;
    for (int other = 0; other < options_.size; ++other) {
      if (waiting.signatures[static_cast<std::size_t>(other)]) ready.push_back(other);
    }
    std::string message = fmt::format(
        "{} can never complete: rank {} has shut down (or ended early) without taking part; "
        "rank{} {} waited for it. {}",
        describe_operation(first_signature(waiting.signatures).kind, name), name_of(rank), ready.size() > 1 ? "s" : "",
        fmt::join(names_of(ready), ", "), kLeftEarly);
    // Taken before its group may be refused as a whole, and with it whatever waits.
    const auto signatures = waiting_.take(name).signatures;
    refuse(signatures, {name, ErrorCode::kPeerLeft, std::move(message)});
    return;
  }
}

void Coordinator::refuse(const Signatures& signatures, const Refusal& refusal) {
  refusals_.push_back(refusal);
  // Ranks may disagree even about the group; every group that was named loses a member.
  std::map<std::string, std::set<std::uint32_t>> groups;
  for (const auto& signature : signatures) {
    if (signature && !signature->group.empty()) groups[signature->group].insert(signature->group_size);
  }
  for (const auto& [group, sizes] : groups) {
    const bool disputed =
        std::ranges::any_of(signatures, [&](const auto& signature) { return signature && signature->group != group; });
    if (disputed || sizes.size() > 1) {  // Its other members need not come from every rank.
      spoil(group, signatures, refusal);
    } else {
      count_in_group(group, *sizes.begin(), std::nullopt, refusal);
    }
  }
}

void Coordinator::spoil(const std::string& group, const Signatures& signatures, Refusal refusal) {
  refusal.message = fmt::format("group '{}' fails as a whole: {}", group, refusal.message);
  SpoiledGroup spoiled{std::move(refusal), std::vector<std::uint32_t>(signatures.size(), 0)};
  const auto belongs = [&](const auto& signature) { return signature && signature->group == group; };
  const std::size_t seen = 1 + (groups_.contains(group) ? groups_.at(group).seen : 0);
  for (std::size_t rank = 0; rank < signatures.size(); ++rank) {
    if (!belongs(signatures[rank]) || signatures[rank]->group_size <= seen) continue;
    spoiled.missing[rank] = signatures[rank]->group_size - static_cast<std::uint32_t>(seen);
  }
  if (groups_.contains(group)) {
    for (const Ready& member : groups_.at(group).members) {
      refusals_.push_back(of_member(member.name, spoiled.refusal, spoiled.refusal.message));
    }
    groups_.erase(group);
  }
  std::vector<std::string> names;
  waiting_.for_each([&](const std::string& name, const WaitingOperation& waiting) {
    if (std::ranges::any_of(waiting.signatures, belongs)) names.push_back(name);
  });
  for (const std::string& name : names) {
    const auto announced = waiting_.take(name).signatures;
    for (std::size_t rank = 0; rank < announced.size(); ++rank) {
      if (belongs(announced[rank]) && spoiled.missing[rank] > 0) --spoiled.missing[rank];
    }
    refusals_.push_back(of_member(name, spoiled.refusal, spoiled.refusal.message));
  }
  if (std::ranges::any_of(spoiled.missing, [](std::uint32_t count) { return count > 0; })) {
    spoiled_.emplace(group, std::move(spoiled));
  }
}

bool Coordinator::refuse_spoiled(int rank, const Announced& announced) {
  const auto found = spoiled_.find(announced.signature.group);
  if (found == spoiled_.end()) return false;
  SpoiledGroup& spoiled = found->second;
  std::uint32_t& missing = spoiled.missing[static_cast<std::size_t>(rank)];
  if (missing == 0) return false;  // The next group of this name.
  --missing;
  refusals_.push_back(of_member(announced.name, spoiled.refusal, spoiled.refusal.message));
  if (std::ranges::all_of(spoiled.missing, [](std::uint32_t count) { return count == 0; })) spoiled_.erase(found);
  return true;
}

OrderedOperation Coordinator::make_ordered(const Ready& ready) const {
  OrderedOperation ordered;
  ordered.name = ready.name;
  ordered.transient = ready.waiting.transient;
  const auto& signatures = ready.waiting.signatures;
  const Signature& first = first_signature(signatures);
  const auto contributors =
      std::count_if(signatures.begin(), signatures.end(), [](const auto& s) { return s != nullptr; });
  if (contributors < options_.size) {
    ordered.signature = first;
    if (ready.waiting.by_contributors) ordered.divisor = static_cast<int>(contributors);
  }
  if (first.kind == OperationKind::kAllgather) {
    for (const auto& signature : signatures) {
      ordered.sizes.push_back(!signature ? 0 : signature->shape.empty() ? 1 : signature->shape[0]);
    }
    const bool all_alike = std::ranges::all_of(ordered.sizes, [&](auto rows) { return rows == ordered.sizes[0]; });
    if (all_alike) ordered.sizes.clear();
  }
  if (first.kind == OperationKind::kAllToAll) ordered.rows = row_knowledge(ready.waiting.rows, options_.size);
  return ordered;
}

Order Coordinator::take_order() {
  std::vector<std::vector<FusionItem>> units;
  for (const auto& members : ready_) {
    std::vector<FusionItem> unit;
    for (const Ready& ready : members) {
      unit.push_back({make_ordered(ready), first_signature(ready.waiting.signatures)});
    }
    units.push_back(std::move(unit));
  }
  ready_.clear();
  Order order;
  order.buckets = fuse(units, options_.fusion_bytes, options_.hosts);
  order.refusals = std::exchange(refusals_, {});
  order.announce_steps = std::exchange(announce_steps_, false);
  order.steps = std::exchange(steps_, {});
  order.last_rank_to_join = std::exchange(last_rank_to_join_, std::nullopt);
  return order;
}

std::vector<Stall> Coordinator::stalls(SteadyClock::time_point now, std::chrono::milliseconds threshold) const {
  std::vector<Stall> stalls;
  waiting_.for_each([&](const std::string& name, const WaitingOperation& waiting) {
    const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(now - waiting.since);
    if (waited < threshold) return;
    Stall stall{name, OperationKind::kBarrier, waited, {}, {}, waiting.arrival};
    for (int rank = 0; rank < options_.size; ++rank) {
      const auto& signature = waiting.signatures[static_cast<std::size_t>(rank)];
      if (signature) stall.kind = signature->kind;
      if (signature || !has_joined(rank)) (signature ? stall.ready_ranks : stall.missing_ranks).push_back(rank);
    }
    stalls.push_back(std::move(stall));
  });
  return stalls;
}

std::uint64_t Coordinator::arrival_of(int rank, const std::string& name) const {
  const WaitingOperation* waiting = waiting_.find(name);
  return waiting != nullptr && waiting->signatures[static_cast<std::size_t>(rank)] ? waiting->arrival : 0;
}

std::string Coordinator::last_announced(int rank, SteadyClock::time_point now) const {
  const auto& last = last_announced_.at(static_cast<std::size_t>(rank));
  if (!last) return "nothing yet";
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now - last->when).count();
  return fmt::format("{} {} s ago", describe_operation(last->kind, last->name), seconds);
}

}  // namespace gyre::engine::internal
