#include "gyre/group/internal/socket_group.h"

#include <fmt/format.h>
#include <spdlog/logger.h>

#include <exception>
#include <utility>

#include "gyre/base/check.h"
#include "gyre/base/fork.h"
#include "gyre/group/in_process.h"
#include "gyre/group/internal/links/segment_exchange.h"
#include "gyre/group/internal/links/waits.h"
#include "gyre/group/internal/rendezvous/rendezvous_server.h"

namespace gyre::group {
namespace {

/// Rank 0 answers the leave of another rank at once. One that gets no answer goes without it: its message has been
/// sent.
constexpr std::chrono::seconds kLongestConfirmation{5};
/// The server answers rank 0's own leave after GroupOptions::longest_farewell at the latest. This much later it stops
/// waiting.
constexpr std::chrono::milliseconds kFarewellGrace{500};

void check_job(const Job& job) {
  if (job.size < 1 || job.size > kMostRanks || job.rank < 0 || job.rank >= job.size) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("rank {} of {} is not a place in a job; ranks count from 0, a job has 1 to {} of them",
                            job.rank, job.size, kMostRanks));
  }
  if (!job.ranks_in_job.empty() && job.ranks_in_job.size() != static_cast<std::size_t>(job.size)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} numbers in the job were given for {} ranks", job.ranks_in_job.size(), job.size));
  }
}

RendezvousOptions rendezvous_options(const Job& job, const GroupOptions& options, const Logger& logger) {
  RendezvousOptions rendezvous;
  rendezvous.size = job.size;
  rendezvous.key = job.key;
  rendezvous.encrypt = job.encrypt;
  rendezvous.allowed = job.allowed;
  rendezvous.where = net::to_string(job.rendezvous);
  rendezvous.join_timeout = options.join_timeout;
  rendezvous.handshake_timeout = options.handshake_timeout;
  rendezvous.longest_farewell = options.longest_farewell;
  rendezvous.logger = logger;
  rendezvous.ranks_in_job = job.ranks_in_job;
  rendezvous.launcher_pipe = job.launcher_pipe;
  return rendezvous;
}

Admission enter(const Job& job, const GroupOptions& options, const Logger& logger, Service& service) {
  let_go_in_forks();
  if (job.rank != 0) return join_rendezvous(job, options);
  UniqueFd listening_socket = listen_for_members(job);
  const UniqueFd copy = duplicate(listening_socket);
  UniqueFd own = service.host_rendezvous(rendezvous_options(job, options, logger), std::move(listening_socket));
  return join_own_rendezvous(job, options, std::move(own), copy.get());
}

std::unique_ptr<net::Stream> as_stream(LinkConnection connection, std::string peer) {
  if (!connection.tls) return net::make_socket_stream(std::move(connection.socket), std::move(peer));
  return net::make_tls_stream(std::move(connection.socket), std::move(connection.tls), std::move(peer));
}

std::vector<Member> named(std::vector<Member> members, const std::vector<int>& ranks_in_job) {
  if (ranks_in_job.empty()) return members;
  for (std::size_t rank = 0; rank < members.size(); ++rank) members[rank].rank_in_job = ranks_in_job[rank];
  return members;
}

}  // namespace

SocketGroup::SocketGroup(const Job& job, const GroupOptions& options, const Logger& logger, Admission admission,
                         std::unique_ptr<Service> service)
    : key_(job.key),
      encrypt_(job.encrypt),
      epoch_(admission.epoch),
      longest_farewell_(options.longest_farewell),
      topology_(named(std::move(admission.members), job.ranks_in_job), job.rank),
      state_(job.size),
      exceptions_at_start_(std::uncaught_exceptions()),
      service_(std::move(service)) {
  Service::Member member;
  member.connection = std::move(admission.connection);
  member.tls = std::move(admission.tls);
  member.listeners = std::move(admission.listeners);
  // Nobody comes from another host: the door to the network can be shut. Unix sockets come first in the list.
  if (topology_.one_host()) member.listeners.sockets.resize(1);
  member.key = key_;
  member.encrypt = encrypt_;
  member.allowed = job.allowed;
  member.epoch = epoch_;
  member.handshake_timeout = options.handshake_timeout;
  member.members = std::move(admission.members_message);
  member.logger = logger;
  for (const Exit& exit : admission.exits) state_.note(exit);
  service_->become_member(std::move(member), state_, topology_);
  if (is_unknown_host(topology_.self().host_id)) {
    logger->warn(
        "rank {} cannot find out which host it is on (/proc/sys/kernel/random/boot_id cannot be read), so it "
        "shares no memory with ranks on the same host; mount /proc where it runs",
        topology_.self().rank_in_job.value_or(rank()));
  }
  if (!encrypt_ && !topology_.one_host() && rank() == 0) {
    logger->warn("connections between the hosts of this job are not encrypted (gyre run --plaintext, GYRE_TLS=0)");
  }
}

SocketGroup::~SocketGroup() {
  if (!has_left(rank()) && std::uncaught_exceptions() > exceptions_at_start_) {
    abort(Error(ErrorCode::kAborted,
                fmt::format("{} was stopped by an exception before it left the group", topology_.describe(rank()))));
  }
  leave();
}

std::unique_ptr<net::Stream> SocketGroup::open_link(int peer, std::uint64_t channel, Deadline deadline) {
  GYRE_CHECK(peer >= 0);
  GYRE_CHECK(peer < size());
  GYRE_CHECK(peer != rank());
  throw_if_left();
  if (rank() < peer) {
    return as_stream(state_.take_link({peer, Purpose::kLink, channel}, topology_, deadline), topology_.describe(peer));
  }
  return connect_as(Purpose::kLink, peer, channel, deadline);
}

std::unique_ptr<net::Stream> SocketGroup::connect(int peer, std::uint64_t channel, Deadline deadline) {
  GYRE_CHECK(peer >= 0);
  GYRE_CHECK(peer < size());
  GYRE_CHECK(peer != rank());
  throw_if_left();
  return connect_as(Purpose::kDirectLink, peer, channel, deadline);
}

void SocketGroup::accept(std::uint64_t channel, LinkSink sink) {
  if (!sink) return state_.accept(channel, {});
  state_.accept(channel, [this, sink = std::move(sink)](int peer, LinkConnection connection) {
    sink(peer, as_stream(std::move(connection), topology_.describe(peer)));
  });
}

std::unique_ptr<net::Stream> SocketGroup::connect_as(Purpose purpose, int peer, std::uint64_t channel,
                                                     Deadline deadline) {
  try {
    const net::Hello hello = hello_for(peer, purpose, channel);
    return as_stream(connect_to_peer(topology_, peer, key_, hello, state_, deadline), topology_.describe(peer));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kPeerLost) throw;
    throw cause_of_loss(peer, error);
  }
}

std::shared_ptr<net::Segment> SocketGroup::share_segment(std::uint64_t channel, std::size_t size_bytes,
                                                         Deadline deadline) {
  return share_segment_among(topology_.local_ranks(), channel, size_bytes, deadline);
}

std::shared_ptr<net::Segment> SocketGroup::share_segment_among(const std::vector<int>& ranks, std::uint64_t channel,
                                                               std::size_t size_bytes, Deadline deadline) {
  throw_if_left();
  try {
    const net::Hello hello = hello_for(ranks.front(), Purpose::kSegment, channel);
    return exchange_segment(topology_, ranks, key_, hello, size_bytes, state_, deadline);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kPeerLost) throw;
    throw cause_of_loss(ranks.front(), error);
  }
}

std::vector<UniqueFd> SocketGroup::exchange_descriptors(std::uint64_t channel, int own, Deadline deadline) {
  return exchange_descriptors_among(topology_.local_ranks(), channel, own, deadline);
}

std::vector<UniqueFd> SocketGroup::exchange_descriptors_among(const std::vector<int>& ranks, std::uint64_t channel,
                                                              int own, Deadline deadline) {
  throw_if_left();
  try {
    const net::Hello hello = hello_for(ranks.front(), Purpose::kSegment, channel);
    return group::exchange_descriptors(topology_, ranks, key_, hello, own, state_, deadline);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kPeerLost) throw;
    throw cause_of_loss(ranks.front(), error);
  }
}

void SocketGroup::abort(const Error& reason) {
  if (state_.abort_signal().triggered() || has_left(rank())) return;
  service_->send_abort(reason);
  // Rank 0 decides whose reason came first, so that all ranks report the same one. Only when it does not answer
  // ours must do.
  state_.wait_for_cause(rank(), 0, Deadline::after(kLongestCauseWait));
  state_.fail(reason);
}

void SocketGroup::leave() {
  if (has_left(rank())) return;
  service_->send_leave();
  const std::chrono::milliseconds longest_wait =
      rank() == 0 ? longest_farewell_ + kFarewellGrace : std::chrono::milliseconds(kLongestConfirmation);
  state_.wait_for_farewell(Deadline::after(longest_wait));
  state_.mark_left(rank());
  service_->stop();
}

void SocketGroup::tolerate_losses(const std::vector<int>& ranks) {
  GYRE_CHECK(rank() == 0);
  throw_if_left();
  for (const int rank : ranks) {
    GYRE_CHECK(rank > 0);
    GYRE_CHECK(rank < size());
  }
  service_->tolerate_losses(ranks);
}

void SocketGroup::leave_subgroup(std::uint64_t subgroup) {
  if (has_left(rank()) || state_.subgroup_exits(subgroup)->has_left(rank())) return;
  service_->send_leave_subgroup(subgroup);
  state_.mark_left_subgroup(rank(), subgroup);
}

net::Hello SocketGroup::hello_for(int peer, Purpose purpose, std::uint64_t channel) const {
  return {.rank = static_cast<std::uint32_t>(rank()),
          .acceptor = static_cast<std::uint32_t>(peer),
          .purpose = static_cast<std::uint32_t>(purpose),
          .channel = channel,
          .epoch = epoch_,
          .encrypts = encrypt_};
}

void SocketGroup::throw_if_left() const {
  if (has_left(rank())) throw Error(ErrorCode::kShutDown, fmt::format("rank {} has left its group", rank()));
}

std::unique_ptr<Group> join_group(const Job& job, const GroupOptions& options, const Logger& logger) {
  check_job(job);
  if (job.size == 1) {
    std::vector<std::string> host_ids;
    if (!options.host_id.empty()) host_ids.push_back(options.host_id);
    return std::move(make_in_process_groups(1, std::move(host_ids)).front());
  }
  try {
    auto service = std::make_unique<Service>();
    Admission admission = enter(job, options, logger, *service);
    return std::make_unique<SocketGroup>(job, options, logger, std::move(admission), std::move(service));
  } catch (Error& error) {
    error.add_context(
        fmt::format("rank {} of {} cannot join its job at {}",
                    job.ranks_in_job.empty() ? job.rank : job.ranks_in_job.at(static_cast<std::size_t>(job.rank)),
                    job.size, net::to_string(job.rendezvous)));
    throw;
  }
}

}  // namespace gyre::group
