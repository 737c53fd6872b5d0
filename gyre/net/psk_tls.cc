#include "gyre/net/psk_tls.h"

#include <fmt/format.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <string_view>
#include <utility>

#include "gyre/base/bytes.h"
#include "gyre/base/check.h"
#include "gyre/base/checksum.h"
#include "gyre/base/error.h"
#include "gyre/base/thread_annotations.h"

namespace gyre::net {
namespace {

template <auto kFree>
struct Freed {
  template <typename T>
  void operator()(T* pointer) const {
    kFree(pointer);
  }
};
using Context = std::unique_ptr<SSL_CTX, Freed<SSL_CTX_free>>;
using Connection = std::unique_ptr<SSL, Freed<SSL_free>>;
using Method = std::unique_ptr<BIO_METHOD, Freed<BIO_meth_free>>;

constexpr const char* kCipherSuite = "TLS_AES_128_GCM_SHA256";
constexpr unsigned char kCipherSuiteNumber[] = {0x13, 0x01};
constexpr std::string_view kIdentity = "gyre";

/// What OpenSSL says about its last failure.
std::string reasons() {
  std::string text;
  while (const unsigned long code = ERR_get_error()) {
    const char* reason = ERR_reason_error_string(code);
    text += fmt::format("{}{}", text.empty() ? "" : "; ", reason != nullptr ? reason : "unknown");
  }
  return text.empty() ? "no reason given" : text;
}

[[noreturn]] void throw_no_tls(std::string_view what) {
  throw Error(ErrorCode::kInternal, fmt::format("OpenSSL cannot {}: {}", what, reasons()));
}

template <typename T>
T required(T pointer, std::string_view what) {
  if (!pointer) throw_no_tls(what);
  return pointer;
}

void require(long result, std::string_view what) {
  if (result != 1) throw_no_tls(what);
}

}  // namespace

/// Ours instead of OpenSSL's socket BIO, which raises SIGPIPE when the peer is gone.
struct TlsSession::Parts {
  std::array<std::byte, kKeyBytes> secret{};
  Method method;
  Context context;
  Connection connection;
  int socket_fd = -1;
  int system_error = 0;  // Of the last call that failed.
  bool closed = false;   // The peer has closed the connection.

  static Parts& of(BIO* bio) { return *static_cast<Parts*>(BIO_get_data(bio)); }
  static Parts& of(const SSL* ssl) { return *static_cast<Parts*>(SSL_get_app_data(ssl)); }

  static int read(BIO* bio, char* into, int size) {
    Parts& parts = of(bio);
    BIO_clear_retry_flags(bio);
    for (;;) {
      const ssize_t count = ::recv(parts.socket_fd, into, static_cast<std::size_t>(size), MSG_DONTWAIT);
      if (count > 0) return static_cast<int>(count);
      if (count == 0) {
        parts.closed = true;
        return 0;
      }
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) {
        BIO_set_retry_read(bio);
      } else {
        parts.system_error = errno;
      }
      return -1;
    }
  }

  static int write(BIO* bio, const char* from, int size) {
    Parts& parts = of(bio);
    BIO_clear_retry_flags(bio);
    for (;;) {
      const ssize_t count = ::send(parts.socket_fd, from, static_cast<std::size_t>(size), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (count >= 0) return static_cast<int>(count);
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) {
        BIO_set_retry_write(bio);
      } else {
        parts.system_error = errno;
      }
      return -1;
    }
  }

  static long control(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

  /// The session that stands for the pre-shared key. OpenSSL takes it over.
  SSL_SESSION* key_session(SSL* ssl) const {
    std::unique_ptr<SSL_SESSION, Freed<SSL_SESSION_free>> session(SSL_SESSION_new());
    const SSL_CIPHER* cipher = SSL_CIPHER_find(ssl, kCipherSuiteNumber);
    const auto* key = reinterpret_cast<const unsigned char*>(secret.data());
    if (!session || cipher == nullptr || SSL_SESSION_set1_master_key(session.get(), key, secret.size()) != 1 ||
        SSL_SESSION_set_cipher(session.get(), cipher) != 1 ||
        SSL_SESSION_set_protocol_version(session.get(), TLS1_3_VERSION) != 1) {
      return nullptr;
    }
    return session.release();
  }

  /// The connector's side: offers the key.
  static int use_key(SSL* ssl, const EVP_MD*, const unsigned char** identity, std::size_t* identity_size,
                     SSL_SESSION** session) {
    *session = of(ssl).key_session(ssl);
    *identity = reinterpret_cast<const unsigned char*>(kIdentity.data());
    *identity_size = kIdentity.size();
    return *session != nullptr ? 1 : 0;
  }

  /// The acceptor's side: what it offers must have been made with our key; OpenSSL checks that.
  static int find_key(SSL* ssl, const unsigned char* identity, std::size_t identity_size, SSL_SESSION** session) {
    *session = nullptr;
    const std::string_view offered(reinterpret_cast<const char*>(identity), identity_size);
    if (offered == kIdentity) *session = of(ssl).key_session(ssl);
    return 1;
  }

  void make_context() {
    context.reset(required(SSL_CTX_new(TLS_method()), "make a context"));
    require(SSL_CTX_set_min_proto_version(context.get(), TLS1_3_VERSION), "insist on TLS 1.3");
    require(SSL_CTX_set_ciphersuites(context.get(), kCipherSuite), "use its cipher suite");
    require(SSL_CTX_set_num_tickets(context.get(), 0), "do without tickets");
    SSL_CTX_set_psk_use_session_callback(context.get(), use_key);
    SSL_CTX_set_psk_find_session_callback(context.get(), find_key);
    SSL_CTX_set_mode(context.get(), SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    // Not ahead of what is asked for: what came right behind the handshake would be inside, where poll(2) does not see
    // it.
    SSL_CTX_set_read_ahead(context.get(), 0);
  }

  void make_connection(Side side) {
    method.reset(required(BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "gyre socket"), "make a BIO"));
    BIO_meth_set_read(method.get(), read);
    BIO_meth_set_write(method.get(), write);
    BIO_meth_set_ctrl(method.get(), control);
    connection.reset(required(SSL_new(context.get()), "make a connection"));
    SSL_set_app_data(connection.get(), this);
    BIO* bio = required(BIO_new(method.get()), "make a BIO");
    BIO_set_data(bio, this);
    BIO_set_init(bio, 1);
    SSL_set_bio(connection.get(), bio, bio);
    if (side == Side::kConnector) {
      // Nobody is trusted for a certificate: an acceptor that shows one instead of using the key fails.
      SSL_set_verify(connection.get(), SSL_VERIFY_PEER, nullptr);
      SSL_set_connect_state(connection.get());
    } else {
      SSL_set_accept_state(connection.get());
    }
  }
};

TlsSession::TlsSession(Side side, const JobKey& key, const Opening& opening, const Answer& answer)
    : parts_(std::make_unique<Parts>()) {
  Bytes transcript;
  const auto add = [&](std::span<const std::byte> bytes) {
    transcript.insert(transcript.end(), bytes.begin(), bytes.end());
  };
  add(as_bytes("tls"));
  add(opening);
  add(answer);
  parts_->secret = hmac_sha256(key, transcript);
  parts_->make_context();
  parts_->make_connection(side);
}

TlsSession::~TlsSession() = default;

short TlsSession::advance(int socket_fd) {
  parts_->socket_fd = socket_fd;
  ERR_clear_error();
  const int result = SSL_do_handshake(parts_->connection.get());
  if (result == 1) {
    // OpenSSL's word for "by the pre-shared key, without certificates".
    if (SSL_session_reused(parts_->connection.get()) == 1) return 0;
    throw Error(ErrorCode::kAuthentication, "the connection was encrypted without the job's key");
  }
  switch (SSL_get_error(parts_->connection.get(), result)) {
    case SSL_ERROR_WANT_READ: return POLLIN;
    case SSL_ERROR_WANT_WRITE: return POLLOUT;
    default: break;
  }
  if (parts_->closed || parts_->system_error != 0) {
    throw Error(ErrorCode::kPeerLost, "the connection ended while it was being encrypted");
  }
  throw Error(ErrorCode::kAuthentication, fmt::format("the connection cannot be encrypted: {}", reasons()));
}

class TlsStream final : public Stream {
 public:
  TlsStream(UniqueFd socket, std::unique_ptr<TlsSession> session, std::string peer)
      : socket_(std::move(socket)), peer_(std::move(peer)), session_(std::move(session)) {
    const MutexLock lock(mutex_);
    session_->parts_->socket_fd = socket_.get();
    GYRE_CHECK(SSL_is_init_finished(session_->parts_->connection.get()) == 1);
  }

  std::size_t read_some(std::span<std::byte> into) override {
    // Until nothing is left inside: poll(2) does not see what has been taken from the socket already.
    const MutexLock lock(mutex_);
    std::size_t total = 0;
    while (total < into.size()) {
      std::size_t count = 0;
      ERR_clear_error();
      if (SSL_read_ex(connection(), into.data() + total, into.size() - total, &count) == 1) {
        total += count;
      } else if (would_block("reading from", total > 0)) {
        break;
      }
    }
    return total;
  }

  std::size_t write_some(std::span<const std::byte> from) override {
    const MutexLock lock(mutex_);
    std::size_t total = 0;
    while (total < from.size()) {
      std::size_t count = 0;
      ERR_clear_error();
      if (SSL_write_ex(connection(), from.data() + total, from.size() - total, &count) == 1) {
        total += count;
      } else if (would_block("writing to", total > 0)) {
        break;
      }
    }
    return total;
  }

  int fd() const override { return socket_.get(); }
  const std::string& peer() const override { return peer_; }

 private:
  SSL* connection() GYRE_REQUIRES(mutex_) { return session_->parts_->connection.get(); }

  /// Of the call that has just failed. Failures are left to the next call where this one has moved something.
  bool would_block(std::string_view what, bool moved) GYRE_REQUIRES(mutex_) {
    const TlsSession::Parts& parts = *session_->parts_;
    const int error = SSL_get_error(connection(), 0);
    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) return true;
    if (error == SSL_ERROR_SSL && !parts.closed && parts.system_error == 0) {
      throw Error(
          ErrorCode::kCorruptData,
          fmt::format("{} {} fails: {}; somebody between the hosts damages or forges data", what, peer_, reasons()));
    }
    if (moved) return true;
    if (parts.system_error != 0) {
      throw Error(ErrorCode::kPeerLost, system_error(fmt::format("{} {}", what, peer_), parts.system_error).what());
    }
    throw Error(ErrorCode::kPeerLost, fmt::format("{} closed the connection", peer_));
  }

  UniqueFd socket_;
  const std::string peer_;
  Mutex mutex_;  // One thread may read while another one writes; OpenSSL's connection is one for both.
  std::unique_ptr<TlsSession> session_ GYRE_GUARDED_BY(mutex_);
};

std::unique_ptr<Stream> make_tls_stream(UniqueFd socket, std::unique_ptr<TlsSession> session, std::string peer) {
  return std::make_unique<TlsStream>(std::move(socket), std::move(session), std::move(peer));
}

}  // namespace gyre::net
