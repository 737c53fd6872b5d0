#include "gyre/group/internal/rendezvous/join_client.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "gyre/group/internal/ended_ranks.h"
#include "gyre/group/internal/links/waits.h"
#include "gyre/group/internal/rendezvous/member_source.h"
#include "gyre/net/message.h"
#include "gyre/net/socket.h"

namespace gyre::group {
namespace {

/// Rank 0 names the missing ranks when its time is up; ours ends this much later, so that we hear it.
constexpr std::chrono::milliseconds kReplyGrace{5'000};
/// How often a rank that waits looks whether another has ended. All look, and the launcher ends the last of them soon
/// after the first one has failed: each should have said why by then.
constexpr int kPauseBetweenLooksMs = 50;
/// Once all have joined, how long rank 0 may take to send the members where no other rank does.
constexpr std::chrono::milliseconds kLongestMembersWait{30'000};
constexpr int kFirstPauseMs = 2;
constexpr int kLongestPauseMs = 100;

Member introduce(const Job& job, const GroupOptions& options, std::vector<net::Endpoint> endpoints) {
  Member member;
  member.rank = job.rank;
  member.host_id = options.host_id.empty() ? this_host_id() : options.host_id;
  member.host_name = options.host_id.empty() ? this_host_name() : options.host_id;
  member.process = ::getpid();
  member.process_namespace = this_process_namespace();
  member.endpoints = std::move(endpoints);
  return member;
}

/// No group can be complete without us, so until we have asked to join we need not ask anybody else about it.
void throw_if_somebody_has_ended(const Job& job) {
  if (auto reason = reason_not_to_wait(job)) throw std::move(*reason);
}

/// Until rank 0 says something, or somebody has ended: why the ranks can never gather.
std::optional<Error> wait_for_rank_zero(const net::Stream& stream, const Job& job, Deadline deadline) {
  pollfd words{.fd = stream.fd(), .events = POLLIN, .revents = 0};
  while (job.ended && !deadline.passed() && ::poll(&words, 1, deadline.poll_timeout_ms(kPauseBetweenLooksMs)) <= 0) {
    if (auto reason = reason_not_to_wait(job)) return reason;
  }
  return std::nullopt;
}

/// What the rendezvous said.
struct Reply {
  bool is_admitted = false;
  std::optional<Error> refusal;  ///< Neither: come back later.
};

/// The rest of the admission, when everybody is there; the reason if the group fails meanwhile.
std::optional<Error> take_members(net::Stream& stream, const Job& job, const Member& own, const Membership& membership,
                                  Admission& admission) {
  EarlyNews news;
  const Deadline deadline = Deadline::after(kLongestSourceWait + kLongestMembersWait);
  const auto payload = fetch_members(stream, job, own, membership, deadline, news);
  if (!payload) return news.failure;
  admission.members = as_seen_from(membership.rank_zero_address, decode_members(*payload, job.size));
  const Member& listed = admission.members[static_cast<std::size_t>(own.rank)];
  if (listed.host_id != own.host_id || listed.process != own.process) {
    throw Error(ErrorCode::kProtocol, fmt::format("rank 0 lists this rank as process {} of host {}, which it is not",
                                                  listed.process, listed.host_name));
  }
  admission.epoch = membership.epoch;
  admission.members_message = net::share_message(static_cast<std::uint16_t>(MessageType::kMembers), *payload);
  admission.exits = std::move(news.exits);
  return std::nullopt;
}

/// Says who we are and waits for the others; completes the admission.
Reply ask_to_join(net::Stream& stream, const Job& job, const Member& member, Deadline deadline, Admission& admission) {
  net::send_message(stream, static_cast<std::uint16_t>(MessageType::kJoin), encode_join({job.size, member}), deadline);
  // From here on rank 0 decides, and says the same to all: everybody may be there already.
  if (const auto reason = wait_for_rank_zero(stream, job, deadline)) {
    net::send_message(stream, static_cast<std::uint16_t>(MessageType::kEnded), encode_failure(*reason), deadline);
  }
  const net::Message reply = net::receive_message(stream, deadline);
  switch (static_cast<MessageType>(reply.type)) {
    case MessageType::kMembership: {
      const auto failure = take_members(stream, job, member, decode_membership(reply.payload), admission);
      return {!failure, failure};
    }
    case MessageType::kComeBack: return {};
    case MessageType::kRefused:
    case MessageType::kAbort: return {false, decode_failure(reply.payload)};
    default: throw Error(ErrorCode::kProtocol, fmt::format("unexpected message type {}", reply.type));
  }
}

/// One try. The rendezvous's reply says whether `admission` is complete.
Reply try_to_join(const Job& job, const GroupOptions& options, Deadline deadline, Admission& admission) {
  admission.connection = net::connect_to(job.rendezvous, deadline, [&] { throw_if_somebody_has_ended(job); });
  net::limit_unacknowledged(admission.connection.get());
  const std::string rank_zero = fmt::format("rank 0 ({})", net::to_string(job.rendezvous));
  auto stream = borrow_as_stream(admission.connection, rank_zero);
  net::Hello hello;
  hello.rank = static_cast<std::uint32_t>(job.rank);
  hello.purpose = static_cast<std::uint32_t>(Purpose::kMembership);
  hello.encrypts = job.encrypt;
  const net::Transcript transcript = net::prove_to_acceptor(*stream, job.key, hello, deadline, [&] {
    // Rank 0 may listen long before its program comes to join.
    if (auto reason = wait_for_rank_zero(*stream, job, deadline)) throw std::move(*reason);
  });
  admission.tls.reset();
  if (job.encrypt && net::leaves_host(admission.connection.get())) {
    admission.tls = std::make_shared<net::TlsSession>(net::TlsSession::Side::kConnector, job.key, transcript);
    for (short event = admission.tls->advance(stream->fd()); event != 0; event = admission.tls->advance(stream->fd())) {
      net::wait_for(stream->fd(), event, deadline, rank_zero);
    }
    stream = net::make_tls_stream(duplicate(admission.connection), admission.tls, rank_zero);
  }
  admission.listeners = listen_for_links(job, admission.connection.get());
  const Member member = introduce(job, options, admission.listeners.endpoints);
  return ask_to_join(*stream, job, member, Deadline::after(options.join_timeout + kReplyGrace), admission);
}

}  // namespace

Admission join_own_rendezvous(const Job& job, const GroupOptions& options, UniqueFd connection, int listening_socket) {
  Admission admission;
  admission.listeners = listen_for_links(job, listening_socket);
  const auto stream = borrow_as_stream(connection, "the rendezvous of this process");
  const Member member = introduce(job, options, admission.listeners.endpoints);
  const Reply reply = ask_to_join(*stream, job, member, Deadline::after(options.join_timeout + kReplyGrace), admission);
  if (reply.refusal) throw *reply.refusal;
  if (!reply.is_admitted) throw Error(ErrorCode::kInternal, "a new rendezvous turned its own rank away");
  admission.connection = std::move(connection);
  return admission;
}

Admission join_rendezvous(const Job& job, const GroupOptions& options) {
  const Deadline deadline = Deadline::after(options.join_timeout);
  Error last(ErrorCode::kTimeout, "the group that this job had before was not dissolved in time");
  int pause_ms = kFirstPauseMs;
  while (!deadline.passed()) {
    Reply reply;
    Admission admission;
    try {
      reply = try_to_join(job, options, deadline, admission);
    } catch (const Error& error) {
      // An earlier group of the job may close its rendezvous under our feet; the next one will come.
      if (error.code() != ErrorCode::kPeerLost) throw;
      throw_if_somebody_has_ended(job);
      last = error;
    }
    if (reply.refusal) throw *reply.refusal;
    if (reply.is_admitted) return admission;
    ::poll(nullptr, 0, deadline.poll_timeout_ms(pause_ms));
    pause_ms = std::min(2 * pause_ms, kLongestPauseMs);
  }
  throw last;
}

}  // namespace gyre::group
