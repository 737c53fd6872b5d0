#include "gyre/group/internal/rendezvous/local_key.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <unistd.h>

#include <set>
#include <utility>
#include <vector>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/net/socket.h"
#include "gyre/net/stream.h"

namespace gyre::group {
namespace {

/// A process of the same user that connects and says nothing may hold up the others this long.
constexpr std::chrono::milliseconds kClientTimeout{1'000};
constexpr int kRetryPauseMs = 10;

/// The rank that got the key; -1 when the other side was not entitled or went away.
int serve_one(UniqueFd connection, const net::JobKey& key) {
  if (net::peer_credentials(connection.get()).user != ::getuid()) return -1;
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

}  // namespace

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

net::JobKey fetch_local_key(const net::Endpoint& endpoint, int rank, Deadline deadline) {
  for (;;) {
    UniqueFd connection = net::connect_to(endpoint, deadline);
    const net::PeerCredentials owner = net::peer_credentials(connection.get());
    if (owner.user != ::getuid()) {
      throw Error(ErrorCode::kAuthentication,
                  fmt::format("{} belongs to process {} of user {}, not to this job's rank 0; its key is not taken",
                              net::to_string(endpoint), owner.process, owner.user));
    }
    const auto stream = net::make_socket_stream(std::move(connection), "rank 0");
    try {
      ByteWriter request;
      request.u32(static_cast<std::uint32_t>(rank));
      write_exactly(*stream, request.result(), deadline);
      net::JobKey key;
      read_exactly(*stream, key, deadline);
      return key;
    } catch (const Error& error) {
      // Rank 0 closed the socket of an earlier join under our feet: its next one will come.
      if (error.code() != ErrorCode::kPeerLost || deadline.passed()) throw;
    }
    ::poll(nullptr, 0, deadline.poll_timeout_ms(kRetryPauseMs));
  }
}

}  // namespace gyre::group
