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
#include <optional>
#include <string_view>
#include <utility>

#include "gyre/base/bytes.h"
#include "gyre/base/check.h"
#include "gyre/base/checksum.h"
#include "gyre/base/error.h"
#include "gyre/base/thread_annotations.h"
#include "gyre/net/internal/batch_buffer.h"

namespace gyre::net {
namespace {

template <auto kFree>
struct Freed {
  template <typename T>
  void operator()(T* pointer) const {
    kFree(pointer);
  }
};
using Connection = std::unique_ptr<SSL, Freed<SSL_free>>;

constexpr const char* kCipherSuite = "TLS_AES_128_GCM_SHA256";
constexpr unsigned char kCipherSuiteNumber[] = {0x13, 0x01};
constexpr std::string_view kIdentity = "gyre";
/// How much is written to, and read from, the socket at a time. A session holds a buffer only while bytes are in it.
constexpr std::size_t kBatchBytes = std::size_t{128} * 1024;
constexpr std::size_t kReadAheadBytes = std::size_t{64} * 1024;
static_assert(kReadAheadBytes <= internal::BatchBuffer::kBytes);

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

/// Between OpenSSL and the socket stand a BIO that hands on what arrives, and a buffer for what leaves: many records go
/// to the kernel in one call, and writing never blocks inside OpenSSL.
struct TlsSession::Parts {
  SecretKey secret;
  TlsOptions options;
  Connection connection;
  int socket_fd = -1;
  int system_error = 0;           // Of the last call that failed.
  bool closed = false;            // The peer has closed the connection.
  bool reads_ahead = false;       // Not during the handshake.
  internal::BatchBuffer arrived;  // Read ahead.
  std::size_t arrived_begin = 0;
  std::size_t arrived_end = 0;
  std::optional<Error> read_failure;  // Met behind bytes that were good; the next read reports it.
  internal::BatchBuffer encrypted;    // On its way to the socket: so many bytes …
  std::size_t encrypted_bytes = 0;
  std::size_t sent = 0;  // … which has taken so much of them.
  /// What `encrypted` holds of the bytes that the caller gives again.
  std::size_t accepted_bytes = 0;
  std::uint64_t records_of_key = 0;
  std::uint64_t keys_replaced = 0;

  static Parts& of(BIO* bio) { return *static_cast<Parts*>(BIO_get_data(bio)); }
  static Parts& of(const SSL* ssl) { return *static_cast<Parts*>(SSL_get_app_data(ssl)); }

  /// One recv(2), as BIO reports it: 0 at the end of the connection, -1 when it would block or has failed.
  int receive(BIO* bio, void* into, std::size_t size) {
    for (;;) {
      const ssize_t count = ::recv(socket_fd, into, size, MSG_DONTWAIT);
      if (count > 0) return static_cast<int>(count);
      if (count == 0) {
        closed = true;
        return 0;
      }
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) {
        BIO_set_retry_read(bio);
      } else {
        system_error = errno;
      }
      return -1;
    }
  }

  /// Many records come with one call of the kernel. OpenSSL's own reading ahead would move all that is left to the
  /// beginning of its buffer for each record.
  static int read(BIO* bio, char* into, int size) {
    Parts& parts = of(bio);
    BIO_clear_retry_flags(bio);
    if (!parts.reads_ahead) return parts.receive(bio, into, static_cast<std::size_t>(size));
    if (parts.arrived_begin == parts.arrived_end) {
      const int count = parts.receive(bio, parts.arrived.take(), kReadAheadBytes);
      if (count <= 0) return count;
      parts.arrived_begin = 0;
      parts.arrived_end = static_cast<std::size_t>(count);
    }
    const std::size_t count = std::min(static_cast<std::size_t>(size), parts.arrived_end - parts.arrived_begin);
    std::memcpy(into, parts.arrived.data() + parts.arrived_begin, count);
    parts.arrived_begin += count;
    return static_cast<int>(count);
  }

  static int write(BIO* bio, const char* from, int size) {
    Parts& parts = of(bio);
    BIO_clear_retry_flags(bio);
    const auto count = static_cast<std::size_t>(size);
    // A batch with the headers of its records and new keys; the handshake sends less.
    GYRE_CHECK(parts.encrypted_bytes + count <= internal::BatchBuffer::kBytes);
    std::memcpy(parts.encrypted.take() + parts.encrypted_bytes, from, count);
    parts.encrypted_bytes += count;
    return size;
  }

  static long control(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

  /// Hands to the socket what it takes. True when nothing is left.
  bool flush() {
    while (sent < encrypted_bytes) {
      // No SIGPIPE when the peer is gone.
      const ssize_t count =
          ::send(socket_fd, encrypted.data() + sent, encrypted_bytes - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) {
        if (errno != EAGAIN && errno != EWOULDBLOCK) system_error = errno;
        return false;
      }
      sent += static_cast<std::size_t>(count);
    }
    encrypted.release();
    encrypted_bytes = 0;
    sent = 0;
    return true;
  }

  /// As many of the bytes as belong into one call of the kernel.
  void encrypt(std::span<const std::byte> from, const std::string& peer) {
    from = from.first(std::min(from.size(), kBatchBytes));
    while (accepted_bytes < from.size()) {
      std::size_t count = 0;
      ERR_clear_error();
      if (SSL_write_ex(connection.get(), from.data() + accepted_bytes, from.size() - accepted_bytes, &count) != 1) {
        // Also after a read that has failed for good.
        throw Error(ErrorCode::kCorruptData, fmt::format("writing to {} fails: {}", peer, reasons()));
      }
      accepted_bytes += count;
      if (++records_of_key < options.records_per_key) continue;
      // Goes out with the next record; the peer need not answer, since each side replaces its own key.
      require(SSL_key_update(connection.get(), SSL_KEY_UPDATE_NOT_REQUESTED), "replace a key");
      records_of_key = 0;
      ++keys_replaced;
    }
  }

  /// Why SSL_read_ex() has got nothing; nothing when more has to arrive first.
  std::optional<Error> failure_of_read(const std::string& peer) const {
    const int error = SSL_get_error(connection.get(), 0);
    if (error == SSL_ERROR_WANT_READ) return std::nullopt;
    if (error == SSL_ERROR_SSL && !closed && system_error == 0) {
      return Error(
          ErrorCode::kCorruptData,
          fmt::format("reading from {} fails: {}; somebody between the hosts damages or forges data", peer, reasons()));
    }
    if (system_error == 0) return Error(ErrorCode::kPeerLost, fmt::format("{} closed the connection", peer));
    return Error(ErrorCode::kPeerLost, gyre::system_error(fmt::format("reading from {}", peer), system_error).what());
  }

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

  /// What all sessions share: constant once it is made, and never freed, because sessions may live until the program's
  /// end. It holds no key: a session's callbacks ask the session.
  static SSL_CTX* shared_context() {
    static SSL_CTX* const kContext = [] {
      SSL_CTX* context = required(SSL_CTX_new(TLS_method()), "make a context");
      require(SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION), "insist on TLS 1.3");
      require(SSL_CTX_set_ciphersuites(context, kCipherSuite), "use its cipher suite");
      require(SSL_CTX_set_num_tickets(context, 0), "do without tickets");
      SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
      SSL_CTX_set_psk_use_session_callback(context, use_key);
      SSL_CTX_set_psk_find_session_callback(context, find_key);
      // A record each, so that they can be counted; and no record's buffers for a connection that is idle.
      SSL_CTX_set_mode(context,
                       SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
      SSL_CTX_set_read_ahead(context, 0);
      return context;
    }();
    return kContext;
  }

  static BIO_METHOD* shared_method() {
    static BIO_METHOD* const kMethod = [] {
      BIO_METHOD* method =
          required(BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "gyre socket"), "make a BIO");
      BIO_meth_set_read(method, read);
      BIO_meth_set_write(method, write);
      BIO_meth_set_ctrl(method, control);
      return method;
    }();
    return kMethod;
  }

  void make_connection(Side side) {
    connection.reset(required(SSL_new(shared_context()), "make a connection"));
    SSL_set_app_data(connection.get(), this);
    BIO* bio = required(BIO_new(shared_method()), "make a BIO");
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

TlsSession::TlsSession(Side side, const JobKey& key, const Transcript& transcript, const TlsOptions& options)
    : parts_(std::make_unique<Parts>()) {
  GYRE_CHECK(options.records_per_key > 0U);
  Bytes signed_bytes;
  const auto add = [&](std::span<const std::byte> bytes) {
    signed_bytes.insert(signed_bytes.end(), bytes.begin(), bytes.end());
  };
  add(as_bytes("tls"));
  add(transcript.opening);
  add(transcript.answer);
  parts_->secret = derive_key(key, as_text(signed_bytes));
  parts_->options = options;
  parts_->make_connection(side);
}

TlsSession::~TlsSession() = default;

short TlsSession::advance(int socket_fd) {
  Parts& parts = *parts_;
  parts.socket_fd = socket_fd;
  ERR_clear_error();
  const int result = SSL_is_init_finished(parts.connection.get()) == 1 ? 1 : SSL_do_handshake(parts.connection.get());
  const int error = SSL_get_error(parts.connection.get(), result);
  const bool flushed = parts.flush();
  if (result != 1 && error != SSL_ERROR_WANT_READ && !parts.closed && parts.system_error == 0) {
    throw Error(ErrorCode::kAuthentication, fmt::format("the connection cannot be encrypted: {}", reasons()));
  }
  if (parts.closed || parts.system_error != 0) {
    throw Error(ErrorCode::kPeerLost, "the connection ended while it was being encrypted");
  }
  if (!flushed) return POLLOUT;
  if (result != 1) return POLLIN;
  // OpenSSL's word for "by the pre-shared key, without certificates".
  if (SSL_session_reused(parts.connection.get()) != 1) {
    throw Error(ErrorCode::kAuthentication, "the connection was encrypted without the job's key");
  }
  // Not before: data that come right behind the handshake would be inside, where poll(2) does not see them.
  parts.reads_ahead = true;
  OPENSSL_cleanse(parts.secret.data(), parts.secret.size());
  return 0;
}

std::size_t TlsSession::read_some(int socket_fd, std::span<std::byte> into, const std::string& peer) {
  Parts& parts = *parts_;
  parts.socket_fd = socket_fd;
  if (parts.read_failure) throw Error(*parts.read_failure);
  std::size_t total = 0;
  while (total < into.size()) {
    std::size_t count = 0;
    ERR_clear_error();
    if (SSL_read_ex(parts.connection.get(), into.data() + total, into.size() - total, &count) == 1) {
      total += count;
      continue;
    }
    parts.read_failure = parts.failure_of_read(peer);
    if (parts.read_failure && total == 0) throw Error(*parts.read_failure);
    break;
  }
  if (parts.arrived_begin == parts.arrived_end) parts.arrived.release();
  return total;
}

std::size_t TlsSession::write_some(int socket_fd, std::span<const std::byte> from, const std::string& peer) {
  Parts& parts = *parts_;
  parts.socket_fd = socket_fd;
  GYRE_CHECK(from.size() >= parts.accepted_bytes);
  std::size_t total = 0;
  while (total < from.size()) {
    if (parts.accepted_bytes == 0) parts.encrypt(from.subspan(total), peer);
    if (!parts.flush()) break;
    total += std::exchange(parts.accepted_bytes, 0);
  }
  if (parts.system_error != 0 && total == 0) {
    throw Error(ErrorCode::kPeerLost, system_error(fmt::format("writing to {}", peer), parts.system_error).what());
  }
  return total;
}

std::uint64_t TlsSession::keys_replaced() const { return parts_->keys_replaced; }

namespace {

class TlsStream final : public Stream {
 public:
  TlsStream(UniqueFd socket, std::shared_ptr<TlsSession> session, std::string peer)
      : socket_(std::move(socket)), fd_(socket_.get()), peer_(std::move(peer)), session_(std::move(session)) {}
  TlsStream(int socket_fd, std::shared_ptr<TlsSession> session, std::string peer)
      : fd_(socket_fd), peer_(std::move(peer)), session_(std::move(session)) {}

  int fd() const override { return fd_; }
  const std::string& peer() const override { return peer_; }

 protected:
  std::size_t receive_some(std::span<std::byte> into) override {
    const MutexLock lock(mutex_);
    return session_->read_some(fd_, into, peer_);
  }

  std::size_t send_some(std::span<const std::byte> from) override {
    const MutexLock lock(mutex_);
    return session_->write_some(fd_, from, peer_);
  }

 private:
  UniqueFd socket_;  // Where this stream owns it.
  int fd_;
  const std::string peer_;
  Mutex mutex_;  // One thread may read while another one writes; OpenSSL's connection is one for both.
  std::shared_ptr<TlsSession> session_ GYRE_GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<Stream> make_tls_stream(UniqueFd socket, std::shared_ptr<TlsSession> session, std::string peer) {
  return std::make_unique<TlsStream>(std::move(socket), std::move(session), std::move(peer));
}

std::unique_ptr<Stream> make_tls_stream_over(int socket_fd, std::shared_ptr<TlsSession> session, std::string peer) {
  return std::make_unique<TlsStream>(socket_fd, std::move(session), std::move(peer));
}

}  // namespace gyre::net
