#pragma once

#include <boost/asio/posix/stream_descriptor.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/base/log.h"
#include "gyre/group/internal/rendezvous/exit_news.h"
#include "gyre/group/internal/rendezvous/membership_messages.h"
#include "gyre/group/launcher_pipe.h"
#include "gyre/net/async/acceptor.h"
#include "gyre/net/async/message_connection.h"
#include "gyre/net/handshake.h"

namespace gyre::group {

struct RendezvousOptions {
  int size = 1;
  net::JobKey key{};
  bool encrypt = true;                ///< As in Job.
  std::vector<net::Network> allowed;  ///< As in Job.
  std::string where;                  ///< The rendezvous, for messages.
  std::chrono::milliseconds join_timeout{60'000};
  std::chrono::milliseconds handshake_timeout{10'000};
  std::chrono::milliseconds longest_farewell{60'000};  ///< See GroupOptions.
  Logger logger;
  std::vector<int> ranks_in_job;  ///< As in Job.
  /// Hears which rank's failure is the group's, before the others are told of it, so that it is known when they fail
  /// because of it. Also the first rank that leaves: a program that ends itself leaves in good order, and others that
  /// still need it fail because of that.
  std::shared_ptr<LauncherPipe> launcher_pipe;
};

/// Rank 0's side of the membership: gathers the ranks, tells everybody who they are, watches their connections and
/// says to all, once, why the group has failed or who has left. Runs on rank 0's service thread.
class RendezvousServer : public std::enable_shared_from_this<RendezvousServer> {
 public:
  RendezvousServer(asio::io_context& context, RendezvousOptions options);

  /// `rank_zero` is the server's end of a socket pair to this process's own member.
  void start(UniqueFd listening_socket, UniqueFd rank_zero);

  /// See Group::tolerate_losses().
  void tolerate_losses(const std::vector<int>& ranks);

 private:
  enum class SeatState : std::uint8_t { kAbsent, kJoined, kLeft, kLost };
  using Connection = std::shared_ptr<net::MessageConnection>;

  struct Seat {
    SeatState state = SeatState::kAbsent;
    Member member;
    Connection connection;
    std::string address_here;  ///< How this member reaches rank 0's host; empty for a unix socket.
    bool disagrees = false;    ///< It came with another setting of encryption and was refused.
    bool is_remote = false;    ///< Its connection comes over a network and not over the loopback.
    bool may_be_lost = false;  ///< Its death is an event and not the group's failure.
  };

  asio::awaitable<void> serve(int rank, Connection connection);
  bool seat_member(int rank, const Connection& connection, const net::Message& message);
  void refuse(int rank, const Connection& connection, const Error& reason);
  void handle(int rank, const net::Message& message);
  void announce_membership();
  void supply(int rank);
  void watch(int rank);
  void lost(int rank, const std::string& evidence);
  void failed(int rank, const Error& reason);
  void spread_loss(int rank, const Error& reason);
  void cannot_gather(const Error& reason);
  void disagreed(const net::Hello& hello, const std::string& peer);
  void fail_if_all_have_come();
  void leave(int rank);
  void leave_subgroup(int rank, const std::vector<Exit>& exits);
  /// Informs the members of an exit, with others that follow closely.
  void spread(const Exit& exit);
  void send_exits();
  void finish_farewell_if_done();
  void fail_because_of(int rank, const Error& reason);
  void fail(const Error& reason);
  void join_time_is_up();
  void send_to_joined(MessageType type, const Bytes& payload);
  bool everybody_is(SeatState state) const;
  std::string describe(int rank) const;
  int rank_in_job(int rank) const;

  asio::io_context& context_;
  RendezvousOptions options_;
  std::shared_ptr<net::Acceptor> acceptor_;
  std::vector<Seat> seats_;
  asio::steady_timer join_timer_;
  asio::steady_timer farewell_timer_;
  net::SharedMessage members_;  ///< Once all have joined.
  ExitNews exit_news_;
  asio::steady_timer exit_timer_;
  bool announced_ = false;
  bool rank_zero_left_ = false;
  bool somebody_has_left_ = false;
  std::optional<Error> disagreement_;  ///< Why the ranks cannot gather, once they have all come.
  std::optional<Error> failure_;
};

}  // namespace gyre::group
