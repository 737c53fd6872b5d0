#include "gyre/group/internal/rendezvous/member_source.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>

#include "gyre/base/checksum.h"
#include "gyre/group/internal/links/addresses.h"
#include "gyre/group/internal/links/waits.h"
#include "gyre/net/handshake.h"
#include "gyre/net/message.h"
#include "gyre/net/psk_tls.h"
#include "gyre/net/socket.h"

namespace gyre::group {
namespace {

bool is_readable(int fd) {
  pollfd entry{.fd = fd, .events = POLLIN, .revents = 0};
  return ::poll(&entry, 1, 0) > 0;
}

/// One try to get the members from another rank than rank 0.
class Source {
 public:
  Source(net::Stream& rank_zero, const Job& job, const Member& own, const Membership& membership, EarlyNews& news)
      : rank_zero_(rank_zero),
        job_(job),
        membership_(membership),
        member_(membership.source.value_or(Member{})),
        news_(news) {
    for (const net::Endpoint& endpoint : member_.endpoints) {
      (endpoint.kind == net::Endpoint::Kind::kUnix ? endpoints_ : addresses_).push_back(endpoint);
    }
    // As for links: on its own host first the unix socket, elsewhere only where all hosts are played.
    if (member_.host_id == own.host_id) {
      endpoints_.insert(endpoints_.end(), addresses_.begin(), addresses_.end());
    } else if (!addresses_.empty()) {
      endpoints_ = addresses_;
    }
  }

  std::optional<Bytes> fetch(Deadline deadline) {
    for (const net::Endpoint& endpoint : endpoints_) {
      try {
        Bytes payload = fetch_from(endpoint, deadline);
        if (sha256(payload) == membership_.digest) return payload;
      } catch (const Error&) {
        // Whatever it was, there may be another way to the same bytes.
        if (payload_ || news_.failure || has_left_ || deadline.passed()) break;
      }
    }
    return std::nullopt;
  }

  /// From rank 0, which sends them unasked where there is no source.
  std::optional<Bytes> fetch_from_rank_zero(bool ask, Deadline deadline) {
    // Whether it is there or not: it may have said why the group has failed before it went.
    hear_what_has_come(deadline);
    try {
      if (ask) net::send_message(rank_zero_, static_cast<std::uint16_t>(MessageType::kNoSource), {}, deadline);
    } catch (const Error&) {
      hear_what_has_come(deadline);  // And then the end of the connection.
    }
    while (!payload_ && !news_.failure) hear(deadline);
    return std::move(payload_);
  }

 private:
  /// The next message of rank 0.
  void hear(Deadline deadline) {
    net::Message message = net::receive_message(rank_zero_, deadline);
    switch (static_cast<MessageType>(message.type)) {
      case MessageType::kMembers: payload_ = std::move(message.payload); break;
      case MessageType::kAbort: news_.failure = decode_failure(message.payload); break;
      case MessageType::kLeft:
        for (const Exit& exit : decode_left(message.payload, job_.size)) {
          has_left_ = has_left_ || (exit.rank == member_.rank && exit.process_set == 0);
          news_.exits.push_back(exit);
        }
        break;
      default: throw Error(ErrorCode::kProtocol, fmt::format("unexpected message type {}", message.type));
    }
  }

  void hear_what_has_come(Deadline deadline) {
    while (!payload_ && !news_.failure && is_readable(rank_zero_.fd())) hear(deadline);
  }

  /// While the source does not answer, rank 0 may say why.
  void throw_if_in_vain(Deadline deadline) {
    hear_what_has_come(deadline);
    if (payload_ || news_.failure || has_left_) throw Error(ErrorCode::kPeerLeft, "the source of the members is gone");
  }

  void wait_for_answer(int fd, Deadline deadline) {
    for (;;) {
      throw_if_in_vain(deadline);
      std::array<pollfd, 2> entries{pollfd{.fd = fd, .events = POLLIN, .revents = 0},
                                    pollfd{.fd = rank_zero_.fd(), .events = POLLIN, .revents = 0}};
      ::poll(entries.data(), entries.size(), deadline.poll_timeout_ms());
      if (entries[0].revents != 0 || deadline.passed()) return;
    }
  }

  Bytes fetch_from(const net::Endpoint& endpoint, Deadline deadline) {
    const UniqueFd connection = net::connect_to(endpoint, deadline, [&] { throw_if_in_vain(deadline); });
    const std::string name = fmt::format("rank {} ({})", member_.rank, net::to_string(endpoint));
    auto stream = borrow_as_stream(connection, name);
    net::Hello hello;
    hello.rank = static_cast<std::uint32_t>(job_.rank);
    hello.acceptor = static_cast<std::uint32_t>(member_.rank);
    hello.purpose = static_cast<std::uint32_t>(Purpose::kMembers);
    hello.epoch = membership_.epoch;
    hello.encrypts = job_.encrypt;
    const net::Transcript transcript =
        net::prove_to_acceptor(*stream, job_.key, hello, deadline, [&] { wait_for_answer(stream->fd(), deadline); });
    if (job_.encrypt && net::leaves_host(connection.get())) {
      auto tls = std::make_shared<net::TlsSession>(net::TlsSession::Side::kConnector, job_.key, transcript);
      for (short event = tls->advance(stream->fd()); event != 0; event = tls->advance(stream->fd())) {
        net::wait_for(stream->fd(), event, deadline, name);
      }
      stream = net::make_tls_stream(duplicate(connection), std::move(tls), name);
    }
    net::Message message = net::receive_message(*stream, deadline);
    if (static_cast<MessageType>(message.type) != MessageType::kMembers) {
      throw Error(ErrorCode::kProtocol, fmt::format("message type {} instead of the members", message.type));
    }
    return std::move(message.payload);
  }

  net::Stream& rank_zero_;
  const Job& job_;
  const Membership& membership_;
  Member member_;  // Rank 0 where there is no source.
  EarlyNews& news_;
  std::vector<net::Endpoint> endpoints_;
  std::vector<net::Endpoint> addresses_;
  bool has_left_ = false;
  std::optional<Bytes> payload_;  // As rank 0 has sent it.
};

}  // namespace

std::optional<Bytes> fetch_members(net::Stream& rank_zero, const Job& job, const Member& own,
                                   const Membership& membership, Deadline deadline, EarlyNews& news) {
  Source source(rank_zero, job, own, membership, news);
  try {
    if (membership.source) {
      auto payload = source.fetch(Deadline::after(kLongestSourceWait));
      if (payload || news.failure) return payload;
    }
    auto payload = source.fetch_from_rank_zero(membership.source.has_value(), deadline);
    if (!payload || sha256(*payload) == membership.digest) return payload;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kPeerLost) throw;
    // This rank is a member: there is no other group that it could join instead.
    news.failure =
        Error(ErrorCode::kPeerLost, fmt::format("{} died or lost its connection ({})", rank_zero.peer(), error.what()));
    return std::nullopt;
  }
  throw Error(ErrorCode::kProtocol, "the members of the job are not those that rank 0 has announced");
}

}  // namespace gyre::group
