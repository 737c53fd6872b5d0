#include "gyre/group/internal/rendezvous/rendezvous_server.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <spdlog/logger.h>
#include <algorithm>
#include <array>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <span>
#include <utility>

#include "gyre/base/checksum.h"
#include "gyre/base/random.h"
#include "gyre/group/internal/links/addresses.h"
#include "gyre/group/internal/rendezvous/process_watch.h"
#include "gyre/group/internal/tolerated.h"
#include "gyre/group/rank_tree.h"
#include "gyre/group/topology.h"
#include "gyre/net/socket.h"

namespace gyre::group {
namespace {

/// The members go through a tree of the ranks, in which each supplies up to so many hosts and so many ranks of its own
/// host. 16: three hops for 4,096 hosts.
constexpr int kMostToSupply = 16;

void send(net::MessageConnection& connection, MessageType type, std::span<const std::byte> payload) {
  connection.send(static_cast<std::uint16_t>(type), payload);
}

}  // namespace

RendezvousServer::RendezvousServer(asio::io_context& context, RendezvousOptions options)
    : context_(context),
      options_(std::move(options)),
      seats_(static_cast<std::size_t>(options_.size)),
      join_timer_(context),
      farewell_timer_(context),
      exit_timer_(context) {}

void RendezvousServer::start(UniqueFd listening_socket, UniqueFd rank_zero) {
  net::AcceptorOptions options;
  options.what = "the rendezvous";
  options.key = options_.key;
  options.expected = static_cast<std::size_t>(options_.size);
  options.handshake_timeout = options_.handshake_timeout;
  options.logger = options_.logger;
  options.encrypt = options_.encrypt;
  options.allowed = options_.allowed;
  options.check = [size = options_.size](const net::Hello& hello) {
    if (hello.purpose != static_cast<std::uint32_t>(Purpose::kMembership) || hello.epoch != 0) {
      throw Error(ErrorCode::kProtocol, fmt::format("purpose {} does not belong here", hello.purpose));
    }
    if (hello.rank == 0 || hello.rank >= static_cast<std::uint32_t>(kMostRanks)) {
      throw Error(ErrorCode::kProtocol, fmt::format("it claims to be rank {} of {}", hello.rank, size));
    }
  };
  // The acceptor is owned by this server, so its callbacks must not own the server in turn.
  options.admitted = [weak = weak_from_this()](const net::Hello& hello, std::shared_ptr<net::AsyncSocket> socket,
                                               std::shared_ptr<net::TlsSession> tls) {
    const auto self = weak.lock();
    if (!self) return;
    auto connection = std::make_shared<net::MessageConnection>(std::move(socket), std::move(tls));
    const int rank = static_cast<int>(hello.rank);
    asio::co_spawn(self->context_, [self, rank, connection] { return self->serve(rank, connection); }, asio::detached);
  };
  options.disagreed = [weak = weak_from_this()](const net::Hello& hello, const std::string& peer) {
    if (const auto self = weak.lock()) self->disagreed(hello, peer);
  };
  acceptor_ = std::make_shared<net::Acceptor>(context_, std::move(options));
  acceptor_->listen(std::move(listening_socket));

  auto connection = std::make_shared<net::MessageConnection>(net::adopt_socket(context_, std::move(rank_zero)));
  asio::co_spawn(
      context_, [self = shared_from_this(), connection] { return self->serve(0, connection); }, asio::detached);
  join_timer_.expires_after(options_.join_timeout);
  join_timer_.async_wait([self = shared_from_this()](const boost::system::error_code& cancelled) {
    if (!cancelled) self->join_time_is_up();
  });
}

void RendezvousServer::tolerate_losses(const std::vector<int>& ranks) {
  for (const int rank : ranks) {
    seats_[static_cast<std::size_t>(rank)].may_be_lost = true;
    if (options_.launcher_pipe) options_.launcher_pipe->may_be_lost(rank_in_job(rank));
  }
}

asio::awaitable<void> RendezvousServer::serve(int rank, Connection connection) {
  std::string evidence;
  bool seated = false;
  try {
    {
      const net::TimeLimit limit(connection->socket(), options_.handshake_timeout);
      const net::Message message = co_await connection->receive();
      seated = seat_member(rank, connection, message);
    }
    if (seated) {
      for (;;) {  // Until the connection ends.
        const net::Message message = co_await connection->receive();
        handle(rank, message);
      }
    }
  } catch (const std::exception& error) {
    evidence = error.what();
  }
  if (seated) {
    lost(rank, evidence);
  } else if (!evidence.empty()) {
    options_.logger->warn("the rendezvous gave up on a newcomer as rank {}: {}", rank, evidence);
  }
  connection->close();
}

bool RendezvousServer::seat_member(int rank, const Connection& connection, const net::Message& message) {
  if (message.type != static_cast<std::uint16_t>(MessageType::kJoin)) {
    throw Error(ErrorCode::kProtocol, fmt::format("message type {} instead of a join", message.type));
  }
  const Join join = decode_join(message.payload);
  const std::string newcomer =
      fmt::format("rank {} (host {}, pid {})", rank, join.member.host_name, join.member.process);
  if (join.size != options_.size || rank >= options_.size || join.member.rank != rank) {
    refuse(rank, connection,
           Error(ErrorCode::kMismatch,
                 fmt::format("{} says that the job has {} ranks, rank 0 was told {}; start all ranks of a job with the "
                             "same size",
                             newcomer, join.size, options_.size)));
    return false;
  }
  Seat& seat = seats_[static_cast<std::size_t>(rank)];
  // Its own rendezvous lasts for one group: what failed before it came is its failure, too.
  if (failure_ && rank == 0 && seat.state == SeatState::kAbsent) {
    send(*connection, MessageType::kAbort, encode_failure(*failure_));
    return false;
  }
  // The group is dissolving, and this process is early for the next one.
  if (failure_ || rank_zero_left_ || seat.state == SeatState::kLeft || seat.state == SeatState::kLost) {
    send(*connection, MessageType::kComeBack, {});
    return false;
  }
  if (seat.state == SeatState::kJoined) {
    refuse(rank, connection,
           Error(ErrorCode::kMismatch, fmt::format("{} claims a rank that {} holds; two processes of a job were given "
                                                   "the same number, or two jobs share one rendezvous ({})",
                                                   newcomer, describe(rank), options_.where)));
    return false;
  }
  seat.state = SeatState::kJoined;
  seat.member = join.member;
  seat.connection = connection;
  if (rank != 0) {
    const int fd = connection->socket()->native_handle();
    net::limit_unacknowledged(fd);
    const net::Endpoint here = net::local_endpoint(fd);
    if (here.kind == net::Endpoint::Kind::kTcp) seat.address_here = here.host;
    seat.is_remote = here.kind == net::Endpoint::Kind::kTcp && !is_loopback(net::peer_endpoint(fd).host);
  }
  if (everybody_is(SeatState::kJoined)) announce_membership();
  fail_if_all_have_come();
  return true;
}

void RendezvousServer::refuse(int rank, const Connection& connection, const Error& reason) {
  options_.logger->warn("the rendezvous refused a newcomer as rank {}: {}", rank, reason.what());
  send(*connection, MessageType::kRefused, encode_failure(reason));
}

void RendezvousServer::announce_membership() {
  announced_ = true;
  join_timer_.cancel();
  std::array<std::byte, sizeof(std::uint64_t)> random;
  fill_with_secure_random(random);
  const std::uint64_t epoch = ByteReader(random, "an epoch").u64() | 1;  // Never 0, which stands for none.
  Members members;
  for (const Seat& seat : seats_) {
    members.members.push_back(seat.member);
    members.on_rank_zeros_host.push_back(!seat.is_remote);
  }
  // The same bytes for all, once: each rank replaces the addresses that it sees otherwise.
  const Bytes payload = encode_members(members);
  members_ = net::share_message(static_cast<std::uint16_t>(MessageType::kMembers), payload);
  Membership membership{epoch, sha256(payload), {}, {}};
  const Topology topology(std::move(members.members), 0);
  const std::vector<int> sources = parents_in_rank_tree(topology.hosts(), kMostToSupply);
  for (int rank = 0; rank < options_.size; ++rank) {
    const Seat& seat = seats_[static_cast<std::size_t>(rank)];
    membership.rank_zero_address = seat.is_remote ? seat.address_here : "";
    membership.source.reset();
    const int parent = sources[static_cast<std::size_t>(rank)];
    if (parent > 0) {
      const Seat& source = seats_[static_cast<std::size_t>(parent)];
      membership.source = as_seen_from(membership.rank_zero_address, source.member, !source.is_remote);
    }
    send(*seat.connection, MessageType::kMembership, encode_membership(membership));
    if (parent <= 0) seat.connection->send(members_);
    watch(rank);
  }
}

/// The rank that was to send it the members has not done so.
void RendezvousServer::supply(int rank) {
  if (!members_) throw Error(ErrorCode::kProtocol, "it asks for the members before all have joined");
  seats_[static_cast<std::size_t>(rank)].connection->send(members_);
}

void RendezvousServer::watch(int rank) {
  UniqueFd process = watch_process(seats_[0].member, seats_[static_cast<std::size_t>(rank)].member);
  if (!process) return;
  auto descriptor = std::make_shared<asio::posix::stream_descriptor>(context_, process.release());
  descriptor->async_wait(asio::posix::stream_descriptor::wait_read,
                         [self = shared_from_this(), descriptor, rank](const boost::system::error_code& failure) {
                           if (!failure) self->lost(rank, "its process has ended");
                         });
}

void RendezvousServer::handle(int rank, const net::Message& message) {
  switch (static_cast<MessageType>(message.type)) {
    case MessageType::kAbort: return failed(rank, decode_failure(message.payload));
    case MessageType::kLeave: return leave(rank);
    case MessageType::kEnded: return cannot_gather(decode_failure(message.payload));
    case MessageType::kNoSource: return supply(rank);
    case MessageType::kLeaveSubgroup: return leave_subgroup(rank, decode_left(message.payload, options_.size));
    default: throw Error(ErrorCode::kProtocol, fmt::format("unexpected message type {}", message.type));
  }
}

void RendezvousServer::lost(int rank, const std::string& evidence) {
  Seat& seat = seats_[static_cast<std::size_t>(rank)];
  if (seat.state != SeatState::kJoined) return;
  seat.state = SeatState::kLost;
  const Error reason(ErrorCode::kPeerLost,
                     announced_ ? fmt::format("{} died or lost its connection ({})", describe(rank), evidence)
                                : fmt::format("{} died or lost its connection before all {} ranks had joined ({})",
                                              describe(rank), options_.size, evidence));
  if (seat.may_be_lost && !failure_) return spread_loss(rank, reason);
  fail_because_of(rank, reason);
  finish_farewell_if_done();
}

/// It says so itself.
void RendezvousServer::failed(int rank, const Error& reason) {
  Seat& seat = seats_[static_cast<std::size_t>(rank)];
  if (!seat.may_be_lost || failure_ || !is_tolerated(reason.code())) return fail_because_of(rank, reason);
  if (seat.state != SeatState::kJoined) return;
  seat.state = SeatState::kLost;
  send(*seat.connection, MessageType::kAbort, encode_failure(reason));  // Its own group has failed.
  spread_loss(rank, reason);
}

/// The group goes on without it.
void RendezvousServer::spread_loss(int rank, const Error& reason) {
  options_.logger->warn("{}; the others go on without it", reason.what());
  spread({rank, 0, true});
  send_exits();  // They may wait for it.
  finish_farewell_if_done();
}

/// It knows the key, so it is one of ours; but neither side may give way to the other, and so the ranks can never
/// gather.
void RendezvousServer::disagreed(const net::Hello& hello, const std::string& peer) {
  if (announced_ || hello.rank >= static_cast<std::uint32_t>(options_.size)) return;
  const int rank = static_cast<int>(hello.rank);
  seats_[static_cast<std::size_t>(rank)].disagrees = true;
  if (!disagreement_) {
    disagreement_ = Error(
        ErrorCode::kMismatch,
        fmt::format("rank {} ({}) {} connections that leave its host and rank {} {}; set GYRE_TLS alike for all ranks",
                    rank_in_job(rank), peer, hello.encrypts ? "encrypts" : "does not encrypt", rank_in_job(0),
                    options_.encrypt ? "does" : "does not"));
  }
  fail_if_all_have_come();
}

/// Those that are still on their way should hear the reason too.
void RendezvousServer::fail_if_all_have_come() {
  const auto has_come = [](const Seat& seat) { return seat.disagrees || seat.state == SeatState::kJoined; };
  if (disagreement_ && std::all_of(seats_.begin(), seats_.end(), has_come)) cannot_gather(*disagreement_);
}

/// Once all were there, whoever says so had not heard of it yet.
void RendezvousServer::cannot_gather(const Error& reason) {
  if (!announced_) fail(reason);
}

void RendezvousServer::leave(int rank) {
  Seat& seat = seats_[static_cast<std::size_t>(rank)];
  if (seat.state != SeatState::kJoined) return;
  seat.state = SeatState::kLeft;
  if (!failure_ && !somebody_has_left_ && options_.launcher_pipe) options_.launcher_pipe->left(rank_in_job(rank));
  somebody_has_left_ = true;
  spread({rank, 0});
  if (rank != 0) {
    send(*seat.connection, MessageType::kLeft, encode_left(std::array{Exit{rank, 0}}));
  } else {
    send_exits();  // The others need this rank's rendezvous and should learn of it at once.
    rank_zero_left_ = true;
    farewell_timer_.expires_after(options_.longest_farewell);
    farewell_timer_.async_wait([self = shared_from_this()](const boost::system::error_code& cancelled) {
      if (cancelled) return;
      self->options_.logger->warn("rank 0 leaves although other ranks are still there: they did not leave within {} ms",
                                  self->options_.longest_farewell.count());
      send(*self->seats_[0].connection, MessageType::kLeft, encode_left(std::array{Exit{0, 0}}));
    });
  }
  finish_farewell_if_done();
}

void RendezvousServer::leave_subgroup(int rank, const std::vector<Exit>& exits) {
  const Exit& exit = exits.front();
  if (exits.size() != 1 || exit.rank != rank || exit.process_set == 0) {
    throw Error(ErrorCode::kProtocol,
                fmt::format("it says that rank {} left process set {}", exit.rank, exit.process_set));
  }
  spread(exit);
}

void RendezvousServer::spread(const Exit& exit) {
  const auto now = SteadyClock::now();
  if (!exit_news_.add(exit, now)) return;  // The timer runs.
  exit_timer_.expires_at(exit_news_.due());
  if (exit_news_.due() <= now) return send_exits();
  exit_timer_.async_wait([self = shared_from_this()](const boost::system::error_code& cancelled) {
    if (!cancelled) self->send_exits();
  });
}

void RendezvousServer::send_exits() {
  const std::vector<Exit> exits = exit_news_.take(SteadyClock::now());
  for (std::size_t first = 0; first < exits.size(); first += kMostExits) {
    const auto batch = std::span(exits).subspan(first, std::min(kMostExits, exits.size() - first));
    send_to_joined(MessageType::kLeft, encode_left(batch));
  }
}

/// Rank 0 hosts this server and so leaves last; but nobody needs it in a group that has failed.
void RendezvousServer::finish_farewell_if_done() {
  if (!rank_zero_left_) return;
  const bool done = failure_ || std::none_of(seats_.begin(), seats_.end(),
                                             [](const Seat& seat) { return seat.state == SeatState::kJoined; });
  if (done && farewell_timer_.cancel() > 0) {
    send(*seats_[0].connection, MessageType::kLeft, encode_left(std::array{Exit{0, 0}}));
  }
}

void RendezvousServer::fail_because_of(int rank, const Error& reason) {
  if (!failure_ && options_.launcher_pipe) options_.launcher_pipe->failed(rank_in_job(rank));
  fail(reason);
}

void RendezvousServer::fail(const Error& reason) {
  if (failure_) return;
  send_exits();
  failure_ = reason;
  join_timer_.cancel();
  send_to_joined(MessageType::kAbort, encode_failure(reason));
  finish_farewell_if_done();
}

void RendezvousServer::join_time_is_up() {
  if (disagreement_) return fail(*disagreement_);
  std::vector<int> missing;
  for (int rank = 0; rank < options_.size; ++rank) {
    if (seats_[static_cast<std::size_t>(rank)].state == SeatState::kAbsent) missing.push_back(rank_in_job(rank));
  }
  fail(Error(ErrorCode::kTimeout,
             fmt::format("{} {} of a job of {} did not join at {} within {} ms; see what they printed, or start them",
                         missing.size() == 1 ? "rank" : "ranks", fmt::join(missing, ", "), options_.size,
                         options_.where, options_.join_timeout.count())));
}

void RendezvousServer::send_to_joined(MessageType type, const Bytes& payload) {
  const auto message = net::share_message(static_cast<std::uint16_t>(type), payload);
  for (const Seat& seat : seats_) {
    if (seat.state == SeatState::kJoined) seat.connection->send(message);
  }
}

bool RendezvousServer::everybody_is(SeatState state) const {
  return std::all_of(seats_.begin(), seats_.end(), [state](const Seat& seat) { return seat.state == state; });
}

std::string RendezvousServer::describe(int rank) const {
  const Member& member = seats_[static_cast<std::size_t>(rank)].member;
  return fmt::format("rank {} (host {}, pid {})", rank_in_job(rank), member.host_name, member.process);
}

int RendezvousServer::rank_in_job(int rank) const {
  return options_.ranks_in_job.empty() ? rank : options_.ranks_in_job[static_cast<std::size_t>(rank)];
}

}  // namespace gyre::group
