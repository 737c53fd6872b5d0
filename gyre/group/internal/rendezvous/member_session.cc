#include "gyre/group/internal/rendezvous/member_session.h"

#include <fmt/format.h>

#include <array>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <utility>

#include "gyre/group/internal/rendezvous/process_watch.h"

namespace gyre::group {

MemberSession::MemberSession(asio::io_context& context, UniqueFd connection, std::shared_ptr<net::TlsSession> tls,
                             GroupState& state, const Topology& topology)
    : context_(context),
      connection_(
          std::make_shared<net::MessageConnection>(net::adopt_socket(context, std::move(connection)), std::move(tls))),
      state_(state),
      topology_(topology) {}

void MemberSession::start() {
  asio::co_spawn(context_, [self = shared_from_this()] { return self->listen(); }, asio::detached);
  watch_rank_zero();
}

void MemberSession::abort(const Error& reason) {
  connection_->send(static_cast<std::uint16_t>(MessageType::kAbort), encode_failure(reason));
}

void MemberSession::leave() { connection_->send(static_cast<std::uint16_t>(MessageType::kLeave), {}); }

void MemberSession::leave_subgroup(std::uint64_t subgroup) {
  connection_->send(static_cast<std::uint16_t>(MessageType::kLeaveSubgroup),
                    encode_left(std::array{Exit{topology_.rank(), subgroup}}));
}

asio::awaitable<void> MemberSession::listen() {
  std::string evidence;
  try {
    for (;;) {
      const net::Message message = co_await connection_->receive();
      handle(message);
    }
  } catch (const std::exception& error) {
    evidence = error.what();
  }
  rendezvous_lost(evidence);
}

void MemberSession::handle(const net::Message& message) {
  switch (static_cast<MessageType>(message.type)) {
    case MessageType::kAbort: return state_.fail(decode_failure(message.payload));
    case MessageType::kLeft: {
      for (const Exit& exit : decode_left(message.payload, topology_.size())) note(exit);
      return;
    }
    default: throw Error(ErrorCode::kProtocol, fmt::format("unexpected message type {}", message.type));
  }
}

void MemberSession::note(const Exit& exit) {
  state_.note(exit);
  if (exit.process_set == 0 && exit.rank == topology_.rank()) state_.finish_farewell();
}

void MemberSession::rendezvous_lost(const std::string& evidence) {
  if (!state_.has_left(topology_.rank())) {
    state_.fail(state_.has_left(0)
                    ? Error(ErrorCode::kPeerLeft,
                            fmt::format("{} left the group and with it went the rendezvous", topology_.describe(0)))
                    : Error(ErrorCode::kPeerLost,
                            fmt::format("{} died or lost its connection ({})", topology_.describe(0), evidence)));
  }
  state_.finish_farewell();
  connection_->close();
}

void MemberSession::watch_rank_zero() {
  UniqueFd process = watch_process(topology_.self(), topology_.member(0));
  if (!process) return;
  auto descriptor = std::make_shared<asio::posix::stream_descriptor>(context_, process.release());
  descriptor->async_wait(asio::posix::stream_descriptor::wait_read,
                         [self = shared_from_this(), descriptor](const boost::system::error_code& failure) {
                           if (!failure) self->rendezvous_lost("its process has ended");
                         });
}

}  // namespace gyre::group
