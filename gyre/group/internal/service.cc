#include "gyre/group/internal/service.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <exception>
#include <future>
#include <utility>

#include "gyre/group/internal/rendezvous/member_session.h"
#include "gyre/group/internal/rendezvous/rendezvous_server.h"
#include "gyre/net/async/acceptor.h"
#include "gyre/net/async/event_loop.h"

namespace gyre::group {

struct Service::Parts {
  net::EventLoop loop;  // First: outlives what refers to it.
  // Touched on the loop's thread only.
  std::shared_ptr<RendezvousServer> server;
  std::shared_ptr<net::Acceptor> link_acceptor;
  std::shared_ptr<MemberSession> session;
};

namespace {

/// How long another rank may take to read the members.
constexpr std::chrono::seconds kLongestSupply{60};

/// Sends the members, and ends when the other rank has them and closes the connection.
asio::awaitable<void> supply(std::shared_ptr<net::MessageConnection> connection, net::SharedMessage members) {
  const net::TimeLimit limit(connection->socket(), kLongestSupply);
  connection->send(std::move(members));
  try {
    co_await connection->receive();  // It has nothing to say: this fails when it closes the connection.
    connection->close();
  } catch (const std::exception&) {
    connection->close();  // If it does not have the members, it asks rank 0.
  }
}

net::AcceptorOptions link_acceptor_options(asio::io_context& context, const Service::Member& member, GroupState& state,
                                           const Topology& topology) {
  net::AcceptorOptions options;
  options.what = fmt::format("rank {}", topology.rank());
  options.key = member.key;
  options.rank = static_cast<std::uint32_t>(topology.rank());
  options.expected = static_cast<std::size_t>(topology.size());
  options.handshake_timeout = member.handshake_timeout;
  options.logger = member.logger;
  options.check = [epoch = member.epoch, &topology](const net::Hello& hello) {
    const auto purpose = static_cast<Purpose>(hello.purpose);
    if (purpose == Purpose::kMembership || purpose > Purpose::kMembers) {
      throw Error(ErrorCode::kProtocol, fmt::format("purpose {} does not belong here", hello.purpose));
    }
    if (hello.epoch != epoch) throw Error(ErrorCode::kProtocol, "it belongs to another epoch of this job");
    // What both ask for the higher rank connects to the lower one.
    const auto own = static_cast<std::uint32_t>(topology.rank());
    const bool by_both = purpose == Purpose::kLink || purpose == Purpose::kSegment;
    const bool may_connect = by_both ? hello.rank > own : hello.rank != own;
    if (!may_connect || hello.rank >= static_cast<std::uint32_t>(topology.size())) {
      throw Error(ErrorCode::kProtocol,
                  fmt::format("rank {} does not connect to rank {}", hello.rank, topology.rank()));
    }
  };
  options.encrypt = member.encrypt;
  options.allowed = member.allowed;
  options.admitted = [&state, &context, members = member.members](const net::Hello& hello,
                                                                  const std::shared_ptr<net::AsyncSocket>& socket,
                                                                  std::shared_ptr<net::TlsSession> session) {
    if (static_cast<Purpose>(hello.purpose) == Purpose::kMembers) {
      auto connection = std::make_shared<net::MessageConnection>(socket, std::move(session));
      asio::co_spawn(context, supply(std::move(connection), members), asio::detached);
      return;
    }
    state.offer_link({static_cast<int>(hello.rank), static_cast<Purpose>(hello.purpose), hello.channel},
                     {net::release_socket(*socket), std::move(session)});
  };
  return options;
}

}  // namespace

Service::Service() : parts_(std::make_unique<Parts>()) {}

Service::~Service() { stop(); }

template <typename Work>
void Service::on_thread(Work work) {
  const MutexLock lock(mutex_);
  if (parts_ == nullptr) return;
  asio::post(parts_->loop.context(), [parts = parts_.get(), work = std::move(work)]() mutable { work(*parts); });
}

UniqueFd Service::host_rendezvous(const RendezvousOptions& options, UniqueFd listening_socket) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
    throw system_error("socketpair", errno);
  }
  UniqueFd ours(ends[0]);
  on_thread([options, listening = std::move(listening_socket), theirs = UniqueFd(ends[1])](Parts& parts) mutable {
    parts.server = std::make_shared<RendezvousServer>(parts.loop.context(), options);
    parts.server->start(std::move(listening), std::move(theirs));
  });
  return ours;
}

void Service::become_member(Member member, GroupState& state, const Topology& topology) {
  on_thread([member = std::move(member), &state, &topology](Parts& parts) mutable {
    asio::io_context& context = parts.loop.context();
    auto options = link_acceptor_options(context, member, state, topology);
    parts.link_acceptor = std::make_shared<net::Acceptor>(context, std::move(options));
    for (UniqueFd& socket : member.listeners.sockets) parts.link_acceptor->listen(std::move(socket));
    parts.session =
        std::make_shared<MemberSession>(context, std::move(member.connection), std::move(member.tls), state, topology);
    parts.session->start();
  });
}

void Service::send_abort(const Error& reason) {
  on_thread([reason](Parts& parts) { parts.session->abort(reason); });
}

void Service::send_leave() {
  on_thread([](Parts& parts) { parts.session->leave(); });
}

void Service::send_leave_subgroup(std::uint64_t subgroup) {
  on_thread([subgroup](Parts& parts) { parts.session->leave_subgroup(subgroup); });
}

void Service::tolerate_losses(const std::vector<int>& ranks) {
  // If the thread is stopped first, the promise is broken, which ends the wait too.
  std::promise<void> done;
  const std::future<void> outcome = done.get_future();
  on_thread([ranks, done = std::move(done)](Parts& parts) mutable {
    parts.server->tolerate_losses(ranks);
    done.set_value();
  });
  outcome.wait();
}

void Service::stop() {
  std::unique_ptr<Parts> parts;
  {
    const MutexLock lock(mutex_);
    parts = std::move(parts_);
  }
  if (parts != nullptr) parts->loop.stop();  // What its thread touches is destroyed afterwards.
}

}  // namespace gyre::group
