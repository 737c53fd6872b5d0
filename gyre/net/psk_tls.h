#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>

#include "gyre/base/file.h"
#include "gyre/net/handshake.h"
#include "gyre/net/stream.h"

namespace gyre::net {

/// TLS 1.3 between two processes that have made the handshake of handshake.h. No certificates: both know a key that
/// follows from the job's and from that handshake, an external pre-shared key in TLS' terms; an ephemeral
/// Diffie-Hellman exchange comes on top, so who learns the job's key later cannot read what was recorded. Not
/// thread-safe until it is a stream.
class TlsSession {
 public:
  enum class Side { kConnector, kAcceptor };

  TlsSession(Side side, const JobKey& key, const Opening& opening, const Answer& answer);
  ~TlsSession();
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  /// Goes on with the handshake over a non-blocking socket as far as it gets. 0: it is done; else the event (POLLIN or
  /// POLLOUT) to wait for before the next call. Error(kAuthentication | kPeerLost).
  short advance(int socket_fd);

 private:
  friend class TlsStream;
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

/// The stream over a session whose handshake is done, and its socket. Errors as every stream's; Error(kCorruptData) for
/// a record that was damaged or forged.
std::unique_ptr<Stream> make_tls_stream(UniqueFd socket, std::unique_ptr<TlsSession> session, std::string peer);

}  // namespace gyre::net
