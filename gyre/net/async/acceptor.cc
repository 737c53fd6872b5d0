#include "gyre/net/async/acceptor.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/resource.h>

#include <spdlog/logger.h>
#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>
#include <optional>
#include <utility>

#include "gyre/base/error.h"
#include "gyre/base/fork.h"
#include "gyre/base/random.h"
#include "gyre/net/socket.h"

namespace gyre::net {
namespace {

/// After the process has run out of descriptors: time for others to close some.
constexpr std::chrono::milliseconds kPauseWithoutDescriptors{100};
/// Connections that are accepted before those that are open get their turn again. A flood would otherwise displace them
/// before a byte of them was read.
constexpr int kMostInTurn = 16;

std::size_t limit_of_open_files() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) throw system_error("cannot read the limit of open files", errno);
  return limit.rlim_cur;
}

/// What the kernel says of where a connection comes from.
std::string source_of(int connection) {
  try {
    if (!leaves_host(connection)) return fmt::format("user {}", peer_credentials(connection).user);
    return peer_endpoint(connection).host;
  } catch (const Error&) {
    return {};  // It has ended already, and fails next.
  }
}

asio::awaitable<void> finish_handshake(TlsSession& session, AsyncSocket& socket) {
  for (short event = session.advance(socket.native_handle()); event != 0;
       event = session.advance(socket.native_handle())) {
    co_await socket.async_wait(event == POLLIN ? AsyncSocket::wait_read : AsyncSocket::wait_write, asio::use_awaitable);
  }
}

}  // namespace

Acceptor::Acceptor(asio::io_context& context, AcceptorOptions options)
    : context_(context),
      options_(std::move(options)),
      strangers_(options_.expected, most_strangers(options_.expected, limit_of_open_files())) {}

void Acceptor::listen(UniqueFd listening_socket) {
  close_in_forks(listening_socket.get());
  auto listener = std::make_shared<Listener>(context_, listening_socket.release());
  listeners_.push_back(listener);
  asio::co_spawn(context_, [self = shared_from_this(), listener] { return self->accept(listener); }, asio::detached);
}

void Acceptor::stop() {
  for (const auto& listener : listeners_) close_quietly(*listener);
  strangers_.for_each([](const std::shared_ptr<AsyncSocket>& stranger) { close_quietly(*stranger); });
}

asio::awaitable<void> Acceptor::accept(std::shared_ptr<Listener> listener) {
  asio::steady_timer pause(context_);
  bool exhausted = false;
  for (;;) {
    boost::system::error_code failure;
    co_await listener->async_wait(Listener::wait_read, asio::redirect_error(asio::use_awaitable, failure));
    if (failure) co_return;  // stop()
    try {
      take_waiting(listener->native_handle());
      exhausted = false;
      continue;
    } catch (const Error& error) {
      // Once: ten times a second, it would use up what is logged of refusals.
      if (!std::exchange(exhausted, true)) log_refusal("somebody", error.what());
    }
    pause.expires_after(kPauseWithoutDescriptors);
    co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, failure));
  }
}

void Acceptor::take_waiting(int listening_fd) {
  for (int i = 0; i < kMostInTurn; ++i) {
    UniqueFd connection = take_one(listening_fd);
    if (!connection) return;
    if (!may_come(connection.get())) continue;
    if (strangers_.full()) make_room();
    std::string peer = describe_peer(connection.get());
    const std::string source = source_of(connection.get());
    auto socket = adopt_socket(context_, std::move(connection));
    const std::uint64_t number = strangers_.add(source, socket);
    asio::co_spawn(
        context_, [self = shared_from_this(), socket, peer, number] { return self->admit(socket, peer, number); },
        asio::detached);
  }
}

/// The next waiting connection. Strangers that have used up the descriptors of this process have to make room.
UniqueFd Acceptor::take_one(int listening_fd) {
  try {
    return accept_from(listening_fd);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kResourceExhausted || strangers_.empty()) throw;
  }
  make_room();  // Of one alone: where memory or the whole system is short, it does not help to displace more.
  return accept_from(listening_fd);
}

void Acceptor::make_room() { close_quietly(*strangers_.displace()); }

/// False for an address that is not allowed; each is logged once.
bool Acceptor::may_come(int connection) {
  if (options_.allowed.empty() || !leaves_host(connection)) return true;
  const std::string address = source_of(connection);
  if (address.empty()) return false;  // It has ended already.
  if (address == local_endpoint(connection).host) return true;
  const auto has_it = [&](const Network& network) { return network.contains(address); };
  if (std::any_of(options_.allowed.begin(), options_.allowed.end(), has_it)) return true;
  if (addresses_refused_.size() < kMostLoggedRefusals && addresses_refused_.insert(address).second) {
    log_refusal(address, "its address is not one of those that GYRE_ALLOW (gyre run --allow) names");
  }
  return false;
}

JobKey Acceptor::key_of(const Hello& hello) const {
  return options_.key_of ? options_.key_of(hello).value_or(options_.key) : options_.key;
}

asio::awaitable<Hello> Acceptor::shake_hands(AsyncSocket& socket, Transcript& transcript, const std::string& peer) {
  co_await read_all(socket, transcript.opening);
  const Hello hello = decode_opening(transcript.opening);
  const JobKey key = key_of(hello);
  Nonce nonce;
  fill_with_secure_random(nonce);
  std::optional<Error> refusal;
  try {
    if (hello.acceptor == options_.rank) options_.check(hello);
  } catch (const Error& error) {
    refusal = error;
  }
  transcript.answer = (refusal ? make_refusal : make_answer)(key, transcript.opening, options_.rank, nonce);
  co_await write_all(socket, transcript.answer);
  if (refusal) throw Error(*refusal);
  check_addressee(hello, options_.rank);  // After the answer, which tells the connector who this is.
  Proof proof;
  try {
    co_await read_all(socket, proof);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kPeerLost) throw;
    throw Error(ErrorCode::kPeerLost,
                "the other side closed the connection before it had proved that it knows the job's key; it probably "
                "has another one");
  }
  check_proof(key, transcript.opening, transcript.answer, proof);
  if (hello.encrypts != options_.encrypt) {
    const std::array<std::byte, 1> disagreement{kOtherEncryption};
    co_await write_all(socket, disagreement);
    options_.disagreed(hello, peer);
    throw Error(ErrorCode::kMismatch,
                fmt::format("rank {} {} connections that leave its host, this job {}; set GYRE_TLS alike for all ranks",
                            hello.rank, hello.encrypts ? "encrypts" : "does not encrypt",
                            hello.encrypts ? "does not" : "does"));
  }
  co_return hello;
}

asio::awaitable<void> Acceptor::admit(std::shared_ptr<AsyncSocket> socket, std::string peer, std::uint64_t number) {
  const TimeLimit limit(socket, options_.handshake_timeout);
  bool proved = false;
  try {
    Transcript transcript;
    const Hello hello = co_await shake_hands(*socket, transcript, peer);
    proved = true;
    strangers_.remove(number);
    const std::array<std::byte, 1> welcome{kWelcome};
    co_await write_all(*socket, welcome);
    std::shared_ptr<TlsSession> session;
    if (options_.encrypt && leaves_host(socket->native_handle())) {
      session = std::make_shared<TlsSession>(TlsSession::Side::kAcceptor, key_of(hello), transcript);
      co_await finish_handshake(*session, *socket);
    }
    options_.admitted(hello, socket, std::move(session));
  } catch (const std::exception& error) {
    const bool displaced = !proved && !strangers_.remove(number);
    log_refusal(peer, limit.passed() ? "it did not finish the handshake in time"
                      : displaced    ? "it had to make room for newer connections before it had proved that it knows "
                                       "the job's key"
                                     : error.what());
    close_quietly(*socket);
  }
}

void Acceptor::log_refusal(const std::string& peer, const std::string& reason) {
  ++refusals_;
  if (refusals_ > kMostLoggedRefusals) return;
  options_.logger->warn("{} refused a connection from {}: {}{}", options_.what, peer, reason,
                        refusals_ == kMostLoggedRefusals ? " (further refusals are not logged)" : "");
}

}  // namespace gyre::net
