#pragma once

#include <memory>
#include <string>

#include "gyre/group/internal/group_state.h"
#include "gyre/group/topology.h"
#include "gyre/net/async/message_connection.h"

namespace gyre::group {

/// A rank's connection to the rendezvous, once it is a member: brings news into the GroupState and sends ours. Runs on
/// the service thread.
class MemberSession : public std::enable_shared_from_this<MemberSession> {
 public:
  /// `state` and `topology` outlive the service thread.
  /// `tls`: the session of an encrypted connection.
  MemberSession(asio::io_context& context, UniqueFd connection, std::shared_ptr<net::TlsSession> tls, GroupState& state,
                const Topology& topology);

  void start();
  void abort(const Error& reason);
  void leave();
  void leave_subgroup(std::uint64_t subgroup);

 private:
  asio::awaitable<void> listen();
  void handle(const net::Message& message);
  void note(const Exit& exit);
  void rendezvous_lost(const std::string& evidence);
  void watch_rank_zero();

  asio::io_context& context_;
  std::shared_ptr<net::MessageConnection> connection_;
  GroupState& state_;
  const Topology& topology_;
};

}  // namespace gyre::group
