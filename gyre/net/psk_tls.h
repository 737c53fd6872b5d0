#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "gyre/base/file.h"
#include "gyre/net/handshake.h"
#include "gyre/net/stream.h"

namespace gyre::net {

struct TlsOptions {
  /// Records (of up to 16 KB) that one key encrypts before it is replaced. AES-GCM is safe for 2^24.5 full records
  /// (RFC 8446, section 5.5); 2^20 of them are 16 GB.
  std::uint64_t records_per_key = std::uint64_t{1} << 20;
};

/// TLS 1.3 between two processes that have made the handshake of handshake.h. No certificates: both know a key that
/// follows from the job's and from that handshake, an external pre-shared key in TLS' terms; an ephemeral
/// Diffie-Hellman exchange comes on top, so that somebody who learns the job's key later cannot read what was recorded.
/// Works on a non-blocking socket that the caller owns and names in each call. An idle session holds no buffers. Not
/// thread-safe; read and write through a stream, which remembers failures.
class TlsSession {
 public:
  enum class Side { kConnector, kAcceptor };

  TlsSession(Side side, const JobKey& key, const Transcript& transcript, const TlsOptions& options = {});
  ~TlsSession();
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  /// Goes on with the handshake as far as it gets. 0: it is done; else the event (POLLIN or POLLOUT) to wait for before
  /// the next call. Error(kAuthentication | kPeerLost).
  short advance(int socket_fd);

  // After the handshake, as Stream's: how many bytes were moved; 0 when it would block. Bytes that were not moved must
  // be given again by the next write: they may be encrypted already. After a read that returned less than it was asked
  // for, nothing is left inside that poll(2) would not see. Error(kPeerLost); Error(kCorruptData) for a record that was
  // damaged or forged. `peer` is named in them.
  std::size_t read_some(int socket_fd, std::span<std::byte> into, const std::string& peer);
  std::size_t write_some(int socket_fd, std::span<const std::byte> from, const std::string& peer);

  /// How often the key of this side has been replaced.
  std::uint64_t keys_replaced() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

/// The stream over a session whose handshake is done, and its socket.
std::unique_ptr<Stream> make_tls_stream(UniqueFd socket, std::shared_ptr<TlsSession> session, std::string peer);
/// The same over a socket that the caller owns and closes only when nobody uses the stream any more.
std::unique_ptr<Stream> make_tls_stream_over(int socket_fd, std::shared_ptr<TlsSession> session, std::string peer);

}  // namespace gyre::net
