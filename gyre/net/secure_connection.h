#pragma once

#include <memory>

#include "gyre/base/clock.h"
#include "gyre/net/endpoint.h"
#include "gyre/net/handshake.h"
#include "gyre/net/job_key.h"
#include "gyre/net/psk_tls.h"
#include "gyre/net/stream.h"

namespace gyre::net {

/// The stream to go on with after the handshake of handshake.h: `plain` where the connection stays on this host, else
/// TLS over its socket. Error(kAuthentication | kTimeout | kPeerLost).
std::unique_ptr<Stream> with_encryption(std::unique_ptr<Stream> plain, TlsSession::Side side, const JobKey& key,
                                        const Transcript& transcript, Deadline deadline);

/// A connection whose both sides have proved that they know the key and mean what `hello` says (which has to state that
/// this side encrypts), encrypted where it leaves this host. The endpoint has to accept it until `accepted`; whoever is
/// there may be busy, and has until `deadline` for the rest.
/// Error(kAuthentication | kTimeout | kPeerLost | kProtocol | kMismatch).
std::unique_ptr<Stream> connect_securely(const Endpoint& endpoint, const JobKey& key, const Hello& hello,
                                         Deadline accepted, Deadline deadline);

}  // namespace gyre::net
