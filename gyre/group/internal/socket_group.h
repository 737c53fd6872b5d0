#pragma once

#include <memory>

#include "gyre/group/group.h"
#include "gyre/group/internal/group_state.h"
#include "gyre/group/internal/rendezvous/join_client.h"
#include "gyre/group/internal/service.h"

namespace gyre::group {

/// The back end of processes that met at a rendezvous.
class SocketGroup final : public Group {
 public:
  SocketGroup(const Job& job, const GroupOptions& options, const Logger& logger, Admission admission,
              std::unique_ptr<Service> service);
  ~SocketGroup() override;

  const Topology& topology() const override { return topology_; }
  AbortSignal& abort_signal() override { return state_.abort_signal(); }
  std::unique_ptr<net::Stream> open_link(int peer, std::uint64_t channel, Deadline deadline) override;
  std::unique_ptr<net::Stream> connect(int peer, std::uint64_t channel, Deadline deadline) override;
  void accept(std::uint64_t channel, LinkSink sink) override;
  std::shared_ptr<net::Segment> share_segment(std::uint64_t channel, std::size_t size_bytes,
                                              Deadline deadline) override;
  void abort(const Error& reason) override;
  void leave() override;
  bool has_left(int rank) const override { return state_.has_left(rank); }
  bool was_lost(int rank) const override { return state_.was_lost(rank); }
  void tolerate_losses(const std::vector<int>& ranks) override;
  int exit_count() const override { return state_.exit_count(); }
  std::shared_ptr<net::Segment> share_segment_among(const std::vector<int>& ranks, std::uint64_t channel,
                                                    std::size_t size_bytes, Deadline deadline) override;
  std::vector<UniqueFd> exchange_descriptors(std::uint64_t channel, int own, Deadline deadline) override;
  std::vector<UniqueFd> exchange_descriptors_among(const std::vector<int>& ranks, std::uint64_t channel, int own,
                                                   Deadline deadline) override;
  void leave_subgroup(std::uint64_t subgroup) override;
  std::shared_ptr<const ExitedRanks> subgroup_exits(std::uint64_t subgroup) override {
    return state_.subgroup_exits(subgroup);
  }
  void wait_for_cause(int peer, std::uint64_t subgroup, Deadline deadline) override {
    state_.wait_for_cause(peer, subgroup, deadline);
  }

 private:
  void throw_if_left() const;
  std::unique_ptr<net::Stream> connect_as(Purpose purpose, int peer, std::uint64_t channel, Deadline deadline);
  net::Hello hello_for(int peer, Purpose purpose, std::uint64_t channel) const;

  net::JobKey key_;
  bool encrypt_;
  std::uint64_t epoch_;
  std::chrono::milliseconds longest_farewell_;
  Topology topology_;
  GroupState state_;
  int exceptions_at_start_;
  std::unique_ptr<Service> service_;  // Last: its thread uses what is above.
};

}  // namespace gyre::group
