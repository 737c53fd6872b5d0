#include "gyre/group/internal/rendezvous/local_key.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <optional>
#include <set>
#include <utility>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/net/socket.h"
#include "gyre/net/stream.h"

namespace gyre::group {
namespace {

/// A process of the same user that connects and says nothing may hold up the others this long.
constexpr std::chrono::milliseconds kClientTimeout{1'000};
constexpr int kFirstKeyPauseMs = 2;
constexpr int kLongestKeyPauseMs = 100;
/// Another user needs as many sockets to keep a job from starting.
constexpr int kPlaces = 16;

/// A user whom our user namespace does not know looks like this one, whoever it is. Ours may be such a user too.
bool is_unmapped(uid_t user) {
  uid_t overflow = 65'534;
  std::ifstream("/proc/sys/kernel/overflowuid") >> overflow;
  if (user != overflow) return false;
  std::ifstream map("/proc/self/uid_map");
  for (std::uint64_t inside = 0, outside = 0, count = 0; map >> inside >> outside >> count;) {
    if (inside <= user && user < inside + count) return false;
  }
  return true;
}

bool is_this_user(const net::PeerCredentials& peer) { return peer.user == ::geteuid() && !is_unmapped(peer.user); }

std::string describe(const net::PeerCredentials& peer) {
  passwd entry{};
  passwd* found = nullptr;
  std::array<char, 4096> buffer;
  ::getpwuid_r(peer.user, &entry, buffer.data(), buffer.size(), &found);
  return fmt::format("process {} of user {}{}", peer.process, peer.user,
                     found != nullptr ? fmt::format(" ({})", found->pw_name) : "");
}

Error held_by_others(const std::vector<net::Endpoint>& places, const net::PeerCredentials& holder) {
  return {ErrorCode::kAuthentication,
          fmt::format("{}, where the ranks of this job would meet on this host, {} to another user ({}), so this job's "
                      "key is neither asked for nor handed out there; end that process, or start the job with gyre "
                      "run, which needs no such name",
                      places.size() == 1 ? net::to_string(places.front())
                                         : fmt::format("{} and the {} names after it", net::to_string(places.front()),
                                                       places.size() - 1),
                      places.size() == 1 ? "belongs" : "belong", describe(holder))};
}

/// What one look at a place has found: a connection to a process of this user, or who else is there, or nobody.
struct Found {
  UniqueFd connection;
  std::optional<net::PeerCredentials> stranger;
};

Found look_at(const net::Endpoint& place) {
  Found found;
  try {
    found.connection = net::connect_to(place, Deadline::after(std::chrono::milliseconds(0)));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kTimeout) throw;
    return found;
  }
  const net::PeerCredentials owner = net::peer_credentials(found.connection.get());
  if (is_this_user(owner)) return found;
  found.connection.reset();
  found.stranger = owner;
  return found;
}

/// A connection to rank 0; empty while it is not there. Error(kAuthentication) when it never can be.
UniqueFd look_for_rank_zero(const std::vector<net::Endpoint>& places) {
  std::optional<net::PeerCredentials> stranger;
  bool all_held = true;
  for (const net::Endpoint& place : places) {
    Found found = look_at(place);
    if (found.connection) return std::move(found.connection);
    all_held = all_held && found.stranger;
    if (found.stranger) stranger = found.stranger;
  }
  if (all_held) throw held_by_others(places, *stranger);
  return {};
}

/// The rank that got the key; -1 when the other side was not entitled or went away.
int serve_one(UniqueFd connection, const net::JobKey& key) {
  if (!is_this_user(net::peer_credentials(connection.get()))) return -1;
  const auto stream = net::make_socket_stream(std::move(connection), "a rank that asks for the key");
  const Deadline deadline = Deadline::after(kClientTimeout);
  try {
    Bytes request(sizeof(std::uint32_t));
    read_exactly(*stream, request, deadline);
    write_exactly(*stream, key, deadline);
    return static_cast<int>(ByteReader(request, "a request for the key").u32());
  } catch (const Error&) {
    return -1;  // It will be missed, and named, if it was a rank.
  }
}

net::JobKey ask_for_key(UniqueFd connection, int rank, Deadline deadline) {
  const auto stream = net::make_socket_stream(std::move(connection), "rank 0");
  ByteWriter request;
  request.u32(static_cast<std::uint32_t>(rank));
  write_exactly(*stream, request.result(), deadline);
  net::JobKey key;
  read_exactly(*stream, key, deadline);
  return key;
}

}  // namespace

std::vector<net::Endpoint> local_meeting_places(const std::string& name) {
  std::vector<net::Endpoint> places;
  for (int place = 0; place < kPlaces; ++place) {
    places.push_back({net::Endpoint::Kind::kUnix, fmt::format("@{}-{}", name, place), 0});
  }
  return places;
}

UniqueFd listen_for_local_ranks(const std::vector<net::Endpoint>& places) {
  std::optional<net::PeerCredentials> stranger;
  for (const net::Endpoint& place : places) {
    try {
      return net::listen_on(place);
    } catch (const Error&) {
      const Found found = look_at(place);
      if (found.connection) throw;
      if (found.stranger) stranger = found.stranger;
      // Bound by somebody who does not listen, or has gone: the ranks will not find anybody there either.
    }
  }
  if (stranger) throw held_by_others(places, *stranger);
  throw Error(ErrorCode::kAuthentication,
              fmt::format("other processes hold {} and the names after it, where the ranks of this job would meet on "
                          "this host, without listening there; start the job with gyre run, which needs no such name",
                          net::to_string(places.front())));
}

void hand_out_local_key(const UniqueFd& listening_socket, int size, const net::JobKey& key, Deadline deadline) {
  std::set<int> missing;
  for (int rank = 1; rank < size; ++rank) missing.insert(rank);
  while (!missing.empty()) {
    try {
      net::wait_for(listening_socket.get(), POLLIN, deadline, "the other ranks");
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kTimeout) throw;
      throw Error(ErrorCode::kTimeout,
                  fmt::format("{} {} of a job of {} did not ask rank 0 for the job's key in time; "
                              "see what they printed",
                              missing.size() == 1 ? "rank" : "ranks", fmt::join(missing, ", "), size));
    }
    UniqueFd connection = net::accept_from(listening_socket.get());
    if (connection) missing.erase(serve_one(std::move(connection), key));
  }
}

net::JobKey fetch_local_key(const std::vector<net::Endpoint>& places, int rank, Deadline give_up, Deadline deadline) {
  for (int pause_ms = kFirstKeyPauseMs;; pause_ms = std::min(2 * pause_ms, kLongestKeyPauseMs)) {
    if (UniqueFd connection = look_for_rank_zero(places)) {
      try {
        return ask_for_key(std::move(connection), rank, deadline);
      } catch (const Error& error) {
        // Rank 0 closed the socket of an earlier join under our feet: its next one will come.
        if (error.code() != ErrorCode::kPeerLost || give_up.passed()) throw;
      }
    }
    if (give_up.passed()) {
      throw Error(ErrorCode::kTimeout,
                  fmt::format("rank {} found nobody who hands out the job's key at {} in time; see "
                              "what rank 0 printed",
                              rank, net::to_string(places.front())));
    }
    ::poll(nullptr, 0, give_up.poll_timeout_ms(pause_ms));
  }
}

}  // namespace gyre::group
