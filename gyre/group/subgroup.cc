#include "gyre/group/subgroup.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <set>
#include <utility>

#include "gyre/base/check.h"

namespace gyre::group {
namespace {

/// The members in their new order.
std::vector<Member> renumbered(const Topology& parent, const std::vector<int>& ranks) {
  std::vector<Member> members;
  for (const int rank : ranks) {
    members.push_back(parent.member(rank));
    members.back().rank = static_cast<int>(members.size()) - 1;
    members.back().rank_in_job = parent.member(rank).rank_in_job.value_or(rank);
  }
  return members;
}

int position_of(int rank, const std::vector<int>& ranks) {
  return static_cast<int>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
}

class Subgroup final : public Group {
 public:
  Subgroup(std::shared_ptr<Group> parent, std::vector<int> ranks, std::uint64_t id)
      : parent_(std::move(parent)),
        ranks_(std::move(ranks)),
        id_(id),
        topology_(renumbered(parent_->topology(), ranks_), position_of(parent_->rank(), ranks_)),
        exited_(parent_->subgroup_exits(id)),
        exceptions_at_start_(std::uncaught_exceptions()) {
    for (const int member : topology_.local_ranks()) local_ranks_in_parent_.push_back(in_parent(member));
    std::sort(local_ranks_in_parent_.begin(), local_ranks_in_parent_.end());
  }

  ~Subgroup() override {
    if (!has_left(rank()) && std::uncaught_exceptions() > exceptions_at_start_) {
      abort(Error(ErrorCode::kAborted,
                  fmt::format("{} was stopped by an exception before it left subgroup {} of the group",
                              topology_.describe(rank()), id_)));
    }
    leave();
  }

  const Topology& topology() const override { return topology_; }
  AbortSignal& abort_signal() override { return parent_->abort_signal(); }

  std::unique_ptr<net::Stream> open_link(int peer, std::uint64_t channel, Deadline deadline) override {
    throw_if_left();
    return parent_->open_link(in_parent(peer), channel_in_parent(channel), deadline);
  }

  std::unique_ptr<net::Stream> connect(int peer, std::uint64_t channel, Deadline deadline) override {
    throw_if_left();
    return parent_->connect(in_parent(peer), channel_in_parent(channel), deadline);
  }

  void accept(std::uint64_t channel, LinkSink sink) override {
    if (!sink) return parent_->accept(channel_in_parent(channel), {});
    // Not `this`: a link may come while the subgroup ends. Ranks of the parent that are no members have no business
    // here.
    parent_->accept(channel_in_parent(channel),
                    [ranks = ranks_, sink = std::move(sink)](int peer, std::unique_ptr<net::Stream> link) {
                      const int position = position_of(peer, ranks);
                      if (position < static_cast<int>(ranks.size())) sink(position, std::move(link));
                    });
  }

  std::shared_ptr<net::Segment> share_segment(std::uint64_t channel, std::size_t size_bytes,
                                              Deadline deadline) override {
    throw_if_left();
    return parent_->share_segment_among(local_ranks_in_parent_, channel_in_parent(channel), size_bytes, deadline);
  }

  std::vector<UniqueFd> exchange_descriptors(std::uint64_t channel, int own, Deadline deadline) override {
    throw_if_left();
    std::vector<UniqueFd> by_parent =
        parent_->exchange_descriptors_among(local_ranks_in_parent_, channel_in_parent(channel), own, deadline);
    std::vector<UniqueFd> by_local_rank;
    for (const int member : topology_.local_ranks()) {
      const int place = position_of(in_parent(member), local_ranks_in_parent_);
      by_local_rank.push_back(std::move(by_parent.at(static_cast<std::size_t>(place))));
    }
    return by_local_rank;
  }

  void abort(const Error& reason) override { parent_->abort(reason); }
  void leave() override { parent_->leave_subgroup(id_); }
  bool has_left(int rank) const override {
    return parent_->has_left(in_parent(rank)) || exited_->has_left(in_parent(rank));
  }
  bool was_lost(int rank) const override { return parent_->was_lost(in_parent(rank)); }
  void tolerate_losses(const std::vector<int>& /*ranks*/) override { throw_nested(); }
  int exit_count() const override { return parent_->exit_count() + exited_->count(); }

  std::shared_ptr<net::Segment> share_segment_among(const std::vector<int>& /*ranks*/, std::uint64_t /*channel*/,
                                                    std::size_t /*size_bytes*/, Deadline /*deadline*/) override {
    throw_nested();
  }
  std::vector<UniqueFd> exchange_descriptors_among(const std::vector<int>& /*ranks*/, std::uint64_t /*channel*/,
                                                   int /*own*/, Deadline /*deadline*/) override {
    throw_nested();
  }
  void leave_subgroup(std::uint64_t /*subgroup*/) override { throw_nested(); }
  std::shared_ptr<const ExitedRanks> subgroup_exits(std::uint64_t /*subgroup*/) override { throw_nested(); }
  void wait_for_cause(int peer, std::uint64_t /*subgroup*/, Deadline deadline) override {
    parent_->wait_for_cause(in_parent(peer), id_, deadline);
  }

 private:
  [[noreturn]] static void throw_nested() {
    throw Error(ErrorCode::kInvalidArgument,
                "a subgroup has no subgroups or policies of its own; those are the whole group's");
  }

  int in_parent(int rank) const { return ranks_.at(static_cast<std::size_t>(rank)); }

  std::uint64_t channel_in_parent(std::uint64_t channel) const {
    GYRE_CHECK(subgroup_of(channel) == 0U);
    return id_ << kSubgroupShift | channel;
  }

  void throw_if_left() const {
    if (!has_left(topology_.rank())) return;
    throw Error(ErrorCode::kShutDown, fmt::format("rank {} has left subgroup {} of its group", parent_->rank(), id_));
  }

  const std::shared_ptr<Group> parent_;
  const std::vector<int> ranks_;  // The parent's numbers, by ours.
  const std::uint64_t id_;
  const Topology topology_;
  const std::shared_ptr<const ExitedRanks> exited_;  // By the parent's numbers.
  const int exceptions_at_start_;
  std::vector<int> local_ranks_in_parent_;  // Ascending, as share_segment_among() wants them.
};

}  // namespace

std::unique_ptr<Group> make_subgroup(std::shared_ptr<Group> parent, std::vector<int> ranks, std::uint64_t id) {
  const auto invalid = [&](const std::string& problem) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("ranks [{}] cannot be a subgroup: {}", fmt::join(ranks, ", "), problem));
  };
  if (id == 0 || id > kLastSubgroup) throw invalid(fmt::format("its number is {}, not 1 to {}", id, kLastSubgroup));
  for (const int rank : ranks) {
    if (rank < 0 || rank >= parent->size())
      throw invalid(fmt::format("the group has the ranks 0 to {}", parent->size() - 1));
  }
  if (std::set<int>(ranks.begin(), ranks.end()).size() != ranks.size()) throw invalid("a rank is there twice");
  if (position_of(parent->rank(), ranks) == static_cast<int>(ranks.size())) {
    throw invalid(fmt::format("this rank, {}, is not among them", parent->rank()));
  }
  return std::make_unique<Subgroup>(std::move(parent), std::move(ranks), id);
}

}  // namespace gyre::group
