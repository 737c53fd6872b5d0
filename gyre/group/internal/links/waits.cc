#include "gyre/group/internal/links/waits.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/base/random.h"
#include "gyre/group/internal/links/addresses.h"
#include "gyre/net/socket.h"

namespace gyre::group {
namespace {

/// A peer listens before it joins, so a refused connection means that it is gone. How long one try may last before
/// we look whether the group knows that too.
constexpr std::chrono::milliseconds kConnectSlice{100};
/// A peer that is flooded with connections of strangers may drop one of ours with them, half-way through the handshake;
/// we come again, at most so often …
constexpr int kMostHandshakes = 50;
/// … unless the group says meanwhile that the peer is gone.
constexpr std::chrono::milliseconds kPauseBetweenHandshakes{100};

/// An address can lead to another rank than its own, where two hosts or containers use the same one, or somebody
/// translates or redirects it. Then the peer's other endpoints are tried, each for so long.
constexpr std::chrono::milliseconds kLongestDetour{10'000};

Deadline sooner(Deadline deadline, std::chrono::milliseconds limit) {
  const Deadline other = Deadline::after(limit);
  return deadline.when() && *deadline.when() < *other.when() ? deadline : other;
}

/// Where `peer` may be reached, in the order in which we try. On the same host first the unix socket; else the peer's
/// interfaces take turns to be the first, so that the links of the ranks of a host, each with its counterpart
/// elsewhere, are spread over them.
std::vector<net::Endpoint> endpoints_of(const Topology& topology, int peer, Purpose purpose) {
  const Member& member = topology.member(peer);
  std::vector<net::Endpoint> unix_sockets;
  std::vector<net::Endpoint> addresses;
  for (const net::Endpoint& endpoint : member.endpoints) {
    (endpoint.kind == net::Endpoint::Kind::kUnix ? unix_sockets : addresses).push_back(endpoint);
  }
  if (!addresses.empty()) {
    const auto first = static_cast<std::size_t>(topology.local_rank()) % addresses.size();
    std::rotate(addresses.begin(), addresses.begin() + static_cast<std::ptrdiff_t>(first), addresses.end());
  }
  const bool same_host = member.host_id == topology.self().host_id;
  if (same_host && !unix_sockets.empty()) {
    // Memory is shared over unix sockets only.
    if (purpose != Purpose::kSegment) unix_sockets.insert(unix_sockets.end(), addresses.begin(), addresses.end());
    return unix_sockets;
  }
  // No addresses: hosts that are only played, by ranks that met over a unix socket.
  if (addresses.empty()) addresses = unix_sockets;
  if (addresses.empty()) throw Error(ErrorCode::kProtocol, fmt::format("{} accepts no links", topology.describe(peer)));
  return addresses;
}

UniqueFd connect_in_slices(const net::Endpoint& endpoint, const Topology& topology, int peer, GroupState& state,
                           Deadline deadline) {
  for (;;) {
    state.abort_signal().throw_if_triggered();
    if (state.has_left(peer)) throw peer_left(topology, peer, state.was_lost(peer));
    const int slice_ms = deadline.poll_timeout_ms(static_cast<int>(kConnectSlice.count()));
    try {
      return net::connect_to(endpoint, Deadline::after(std::chrono::milliseconds(slice_ms)));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kTimeout || deadline.passed()) {
        throw Error(error).add_context(fmt::format("linking with {}", topology.describe(peer)));
      }
    }
  }
}

/// net::prove_to_acceptor, with waits that an abort ends, and the TLS handshake after it where `encrypt` says so.
std::shared_ptr<net::TlsSession> prove_to_peer(net::Stream& stream, const net::JobKey& key, const net::Hello& hello,
                                               bool encrypt, GroupState& state, Deadline deadline) {
  net::Nonce nonce;
  fill_with_secure_random(nonce);
  net::Transcript transcript{net::encode_opening(hello, nonce), {}};
  write_exactly(stream, transcript.opening, state, deadline);
  read_exactly(stream, transcript.answer, state, deadline);
  write_exactly(stream, net::check_answer_and_prove(key, transcript.opening, transcript.answer), state, deadline);
  std::byte welcome{};
  read_exactly(stream, {&welcome, 1}, state, deadline);
  net::check_welcome(welcome, hello, stream.peer());
  if (!encrypt) return nullptr;
  auto session = std::make_shared<net::TlsSession>(net::TlsSession::Side::kConnector, key, transcript);
  for (short event = session->advance(stream.fd()); event != 0; event = session->advance(stream.fd())) {
    wait_for(stream.fd(), event, state, deadline, stream.peer());
  }
  return session;
}

LinkConnection connect_at(const net::Endpoint& endpoint, const Topology& topology, int peer, const net::JobKey& key,
                          const net::Hello& hello, GroupState& state, Deadline deadline) {
  for (int handshake = 1;; ++handshake) {
    UniqueFd connection = connect_in_slices(endpoint, topology, peer, state, deadline);
    // Decided by what the kernel knows of the connection: where the peer says that it is does not count.
    const bool leaves = net::leaves_host(connection.get());
    if (leaves && static_cast<Purpose>(hello.purpose) == Purpose::kSegment) {
      throw Error(ErrorCode::kProtocol,
                  fmt::format("{} says that it is on this host, but has no unix socket here", topology.describe(peer)));
    }
    try {
      const auto stream = borrow_as_stream(connection, topology.describe(peer));
      auto session = prove_to_peer(*stream, key, hello, hello.encrypts && leaves, state, deadline);
      return {std::move(connection), std::move(session)};
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kPeerLost || handshake == kMostHandshakes || deadline.passed()) throw;
    }
    state.wait_for_cause(peer, 0, Deadline::after(kPauseBetweenHandshakes));
  }
}

/// What has answered at an endpoint of `peer` instead of it.
Error answered_by_another(const Topology& topology, int peer, const net::Endpoint& endpoint, const Error& failure) {
  const auto* wrong = dynamic_cast<const net::WrongAcceptor*>(&failure);
  if (wrong == nullptr || wrong->reached() >= static_cast<std::uint32_t>(topology.size())) {
    return Error(failure).add_context(
        fmt::format("linking {} with {}", topology.describe(topology.rank()), topology.describe(peer)));
  }
  return {ErrorCode::kAuthentication,
          fmt::format("{} wants to link with {}, but {} answers at {}; an address is used twice, or redirected on the "
                      "way: GYRE_INTERFACES names the network interfaces whose addresses lead from host to host",
                      topology.describe(topology.rank()), topology.describe(peer),
                      topology.describe(static_cast<int>(wrong->reached())), net::to_string(endpoint))};
}

}  // namespace

void wait_for(int fd, short events, GroupState& state, Deadline deadline, std::string_view what) {
  for (;;) {
    pollfd entries[2] = {{fd, events, 0}, {state.abort_signal().fd(), POLLIN, 0}};
    const int count = ::poll(entries, 2, deadline.poll_timeout_ms());
    if (count < 0 && errno != EINTR) throw system_error("poll", errno);
    state.abort_signal().throw_if_triggered();
    if (count > 0) return;
    if (deadline.passed()) throw Error(ErrorCode::kTimeout, fmt::format("waiting for {} took too long", what));
  }
}

void read_exactly(net::Stream& stream, std::span<std::byte> into, GroupState& state, Deadline deadline) {
  net::read_exactly(stream, into, [&](short events) { wait_for(stream.fd(), events, state, deadline, stream.peer()); });
}

void write_exactly(net::Stream& stream, std::span<const std::byte> from, GroupState& state, Deadline deadline) {
  net::write_exactly(stream, from,
                     [&](short events) { wait_for(stream.fd(), events, state, deadline, stream.peer()); });
}

std::unique_ptr<net::Stream> borrow_as_stream(const UniqueFd& socket, std::string peer) {
  return net::make_socket_stream(duplicate(socket), std::move(peer));
}

LinkConnection connect_to_peer(const Topology& topology, int peer, const net::JobKey& key, const net::Hello& hello,
                               GroupState& state, Deadline deadline) {
  std::optional<Error> misled;  // The first endpoint that led elsewhere.
  for (const net::Endpoint& endpoint : endpoints_of(topology, peer, static_cast<Purpose>(hello.purpose))) {
    const Deadline limit = misled ? sooner(deadline, kLongestDetour) : deadline;
    try {
      return connect_at(endpoint, topology, peer, key, hello, state, limit);
    } catch (const Error& error) {
      state.abort_signal().throw_if_triggered();
      if (error.code() == ErrorCode::kPeerLeft) throw;
      if (!misled && error.code() != ErrorCode::kAuthentication) throw;
      if (!misled) misled = answered_by_another(topology, peer, endpoint, error);
    }
  }
  throw Error(*misled);
}

}  // namespace gyre::group
