#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>

#include "apps/bench_store/benches.h"
#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"

namespace gyre::bench {

namespace {

using Clock = std::chrono::steady_clock;
using Connection = std::unique_ptr<SSL, decltype(&::SSL_free)>;
using Context = std::unique_ptr<SSL_CTX, decltype(&::SSL_CTX_free)>;

constexpr const char* kCipherSuite = "TLS_AES_128_GCM_SHA256";
constexpr std::array<unsigned char, 2> kCipherSuiteNumber = {0x13, 0x01};
constexpr std::string_view kIdentity = "bench";
constexpr std::array<unsigned char, 32> kKey = {1, 2, 3};  // Nothing is secret here.

sockaddr_in socket_address(const std::string& address, int port) {
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_port = htons(static_cast<std::uint16_t>(port));
  if (::inet_pton(AF_INET, address.c_str(), &place.sin_addr) != 1)
    throw Error(ErrorCode::kInvalidArgument, address + " is no IPv4 address");
  return place;
}

SSL_SESSION* known_session(SSL* connection) {
  SSL_SESSION* const session = ::SSL_SESSION_new();
  ::SSL_SESSION_set1_master_key(session, kKey.data(), kKey.size());
  ::SSL_SESSION_set_cipher(session, ::SSL_CIPHER_find(connection, kCipherSuiteNumber.data()));
  ::SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION);
  return session;
}

int find_session(SSL* connection, const unsigned char*, std::size_t, SSL_SESSION** session) {
  *session = known_session(connection);
  return 1;
}

int use_session(SSL* connection, const EVP_MD*, const unsigned char** id, std::size_t* size, SSL_SESSION** session) {
  *id = reinterpret_cast<const unsigned char*>(kIdentity.data());
  *size = kIdentity.size();
  *session = known_session(connection);
  return 1;
}

/// Owns what it needs until the process ends: there is one connection.
Connection connection_over(int fd, bool accept) {
  static const Context context(::SSL_CTX_new(::TLS_method()), &::SSL_CTX_free);
  ::SSL_CTX_set_min_proto_version(context.get(), TLS1_3_VERSION);
  ::SSL_CTX_set_ciphersuites(context.get(), kCipherSuite);
  ::SSL_CTX_set_psk_find_session_callback(context.get(), &find_session);
  ::SSL_CTX_set_psk_use_session_callback(context.get(), &use_session);
  ::SSL_CTX_set_read_ahead(context.get(), 1);
  ::SSL_CTX_set_default_read_buffer_len(context.get(), 64 * 1024);
  Connection connection(::SSL_new(context.get()), &::SSL_free);
  ::SSL_set_fd(connection.get(), fd);
  if ((accept ? ::SSL_accept(connection.get()) : ::SSL_connect(connection.get())) != 1)
    throw Error(ErrorCode::kProtocol, "the TLS handshake failed");
  return connection;
}

UniqueFd new_socket() {
  UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket) throw system_error("cannot make a socket", errno);
  return socket;
}

}  // namespace

void send_over_tls(const std::string& address, int port, std::size_t message_bytes) {
  const UniqueFd listener = new_socket();
  const int yes = 1;
  ::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  const sockaddr_in place = socket_address(address, port);
  if (::bind(listener.get(), reinterpret_cast<const sockaddr*>(&place), sizeof place) != 0 ||
      ::listen(listener.get(), 1) != 0)
    throw system_error("cannot listen at " + address, errno);
  std::puts("ready");
  std::fflush(stdout);
  const UniqueFd socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!socket) throw system_error("cannot accept a connection", errno);
  const Connection connection = connection_over(socket.get(), true);
  const Bytes message(message_bytes, std::byte{7});
  while (::SSL_write(connection.get(), message.data(), static_cast<int>(message.size())) > 0) {
  }  // Until the receiver has closed the connection.
}

nlohmann::json receive_over_tls(const std::string& address, int port, std::size_t message_bytes, double seconds) {
  const UniqueFd socket = new_socket();
  const sockaddr_in place = socket_address(address, port);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&place), sizeof place) != 0)
    throw system_error("cannot connect to " + address, errno);
  const Connection connection = connection_over(socket.get(), false);
  Bytes into(message_bytes);
  const auto receive = [&](double for_seconds) {
    std::uint64_t bytes = 0;
    const auto began = Clock::now();
    std::chrono::duration<double> spent{};
    do {
      const int count = ::SSL_read(connection.get(), into.data(), static_cast<int>(into.size()));
      if (count <= 0) throw Error(ErrorCode::kPeerLost, "the sender has gone");
      bytes += static_cast<std::uint64_t>(count);
      spent = Clock::now() - began;
    } while (spent.count() < for_seconds);
    return static_cast<double>(bytes) / spent.count();
  };
  static_cast<void>(receive(seconds / 4));  // TCP's windows open.
  return {{"bytes_per_second", receive(seconds)}};
}

}  // namespace gyre::bench
