#include "gyre/net/http/internal/client_connection.h"

#include <fmt/format.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/x509.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <utility>

#include "gyre/base/account.h"
#include "gyre/base/error.h"
#include "gyre/net/socket.h"

namespace gyre::net::http::internal {
namespace {

constexpr std::size_t kReceivedAtOnce = 65'536;
/// How often `meanwhile` is called.
constexpr int kTickMs = 100;

[[noreturn]] void throw_failed(int failure) {
  if (failure == EPIPE || failure == ECONNRESET || failure == ETIMEDOUT) {
    throw Error(ErrorCode::kPeerLost,
                fmt::format("the server is gone: {}", system_error("connection", failure).what()));
  }
  throw system_error("a connection to the server", failure);
}

}  // namespace

ClientConnection::ClientConnection(const ClientOptions& options)
    : socket_(connect_to(options.endpoint, Deadline::after(options.connect), options.meanwhile)),
      meanwhile_(options.meanwhile) {
  if (!options.fingerprint.empty()) begin_tls(options, Deadline::after(options.connect));
  if (options.token.empty() || leaves_host(socket_.get())) return;
  // Whoever listens at a name in a folder for everybody may have taken it.
  const uid_t server = peer_credentials(socket_.get()).user;
  if (server == 0 || server == ::geteuid() || server == options.server_account) return;
  throw Error(
      ErrorCode::kAuthentication,
      fmt::format("the server at {} belongs to account '{}', and the token is for another one's; it was not sent",
                  to_string(options.endpoint), name_of_account(server)));
}

bool ClientConnection::usable() const {
  char byte = 0;
  const ssize_t count = ::recv(socket_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
}

void ClientConnection::wait(short events, Deadline deadline) {
  for (;;) {
    meanwhile_();
    pollfd entry{socket_.get(), events, 0};
    const int count = ::poll(&entry, 1, deadline.poll_timeout_ms(kTickMs));
    if (count > 0) return;
    if (count < 0 && errno != EINTR) throw system_error("poll", errno);
    if (deadline.passed()) throw Error(ErrorCode::kTimeout, "the server does not answer");
  }
}

void ClientConnection::write_plain(std::string_view bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t count = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(count));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      wait(POLLOUT, deadline);
    } else if (errno != EINTR) {
      throw_failed(errno);
    }
  }
}

bool ClientConnection::read_plain(std::string& buffer, Deadline deadline) {
  for (;;) {
    const std::size_t before = buffer.size();
    buffer.resize(before + kReceivedAtOnce);
    const ssize_t count = ::recv(socket_.get(), buffer.data() + before, kReceivedAtOnce, 0);
    const int failure = errno;
    buffer.resize(before + static_cast<std::size_t>(count > 0 ? count : 0));
    if (count > 0) return true;
    if (count == 0) return false;
    if (failure == EAGAIN || failure == EWOULDBLOCK) {
      wait(POLLIN, deadline);
    } else if (failure != EINTR) {
      throw_failed(failure);
    }
  }
}

void ClientConnection::begin_tls(const ClientOptions& options, Deadline deadline) {
  context_ = make_client_context();
  tls_.reset(SSL_new(context_.get()));
  BIO* in = BIO_new(BIO_s_mem());
  BIO* out = BIO_new(BIO_s_mem());
  if (!tls_ || in == nullptr || out == nullptr) throw Error(ErrorCode::kInternal, "OpenSSL cannot make a connection");
  SSL_set_bio(tls_.get(), in, out);
  SSL_set_connect_state(tls_.get());
  ERR_clear_error();
  for (int result = SSL_do_handshake(tls_.get()); result != 1; result = SSL_do_handshake(tls_.get())) {
    const int reason = SSL_get_error(tls_.get(), result);
    flush_tls(deadline);
    std::string bytes;
    if (reason != SSL_ERROR_WANT_READ || !read_plain(bytes, deadline)) {
      throw Error(ErrorCode::kAuthentication,
                  fmt::format("what listens at {} does not speak TLS 1.3, and has got nothing else from here",
                              to_string(options.endpoint)));
    }
    BIO_write(SSL_get_rbio(tls_.get()), bytes.data(), static_cast<int>(bytes.size()));
  }
  flush_tls(deadline);
  const std::unique_ptr<X509, Freed<X509_free>> certificate(SSL_get1_peer_certificate(tls_.get()));
  const std::string found = certificate ? fingerprint_of(certificate.get()) : "none";
  if (found == options.fingerprint) return;
  throw Error(ErrorCode::kAuthentication,
              fmt::format("the server at {} is not the one that is meant: its fingerprint is {}, not {}; nothing was "
                          "sent to it",
                          to_string(options.endpoint), found, options.fingerprint));
}

void ClientConnection::flush_tls(Deadline deadline) {
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(SSL_get_wbio(tls_.get()), &bytes);
  if (size <= 0) return;
  const std::string out(bytes, static_cast<std::size_t>(size));
  static_cast<void>(BIO_reset(SSL_get_wbio(tls_.get())));
  write_plain(out, deadline);
}

void ClientConnection::write(std::string_view bytes, Deadline deadline) {
  if (!tls_) return write_plain(bytes, deadline);
  while (!bytes.empty()) {
    std::size_t count = 0;
    if (SSL_write_ex(tls_.get(), bytes.data(), bytes.size(), &count) != 1) {
      throw Error(ErrorCode::kPeerLost, "the encrypted connection to the server has ended");
    }
    bytes.remove_prefix(count);
    flush_tls(deadline);
  }
}

bool ClientConnection::has_more() const {
  return tls_ && (SSL_pending(tls_.get()) > 0 || BIO_ctrl_pending(SSL_get_rbio(tls_.get())) > 0);
}

bool ClientConnection::read(std::string& buffer, Deadline deadline) {
  if (!tls_) return read_plain(buffer, deadline);
  for (;;) {
    const std::size_t before = buffer.size();
    buffer.resize(before + kReceivedAtOnce);
    std::size_t count = 0;
    ERR_clear_error();
    const bool got = SSL_read_ex(tls_.get(), buffer.data() + before, kReceivedAtOnce, &count) == 1;
    buffer.resize(before + (got ? count : 0));
    if (got) return true;
    const int reason = SSL_get_error(tls_.get(), 0);
    if (reason == SSL_ERROR_ZERO_RETURN) return false;
    if (reason != SSL_ERROR_WANT_READ)
      throw Error(ErrorCode::kPeerLost, "the encrypted connection to the server is damaged");
    flush_tls(deadline);
    std::string bytes;
    if (!read_plain(bytes, deadline)) return false;
    BIO_write(SSL_get_rbio(tls_.get()), bytes.data(), static_cast<int>(bytes.size()));
  }
}

}  // namespace gyre::net::http::internal
