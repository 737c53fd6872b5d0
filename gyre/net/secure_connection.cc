#include "gyre/net/secure_connection.h"

#include <fcntl.h>

#include <cerrno>
#include <utility>

#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/net/socket.h"

namespace gyre::net {

namespace {

UniqueFd duplicate(int fd) {
  UniqueFd copy(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!copy) throw system_error("cannot copy a descriptor", errno);
  return copy;
}

}  // namespace

std::unique_ptr<Stream> with_encryption(std::unique_ptr<Stream> plain, TlsSession::Side side, const JobKey& key,
                                        const Transcript& transcript, Deadline deadline) {
  if (!leaves_host(plain->fd())) return plain;
  auto session = std::make_shared<TlsSession>(side, key, transcript);
  for (short event = session->advance(plain->fd()); event != 0; event = session->advance(plain->fd())) {
    wait_for(plain->fd(), event, deadline, plain->peer());
  }
  return make_tls_stream(duplicate(plain->fd()), session, plain->peer());
}

std::unique_ptr<Stream> connect_securely(const Endpoint& endpoint, const JobKey& key, const Hello& hello,
                                         Deadline accepted, Deadline deadline) {
  auto stream = make_socket_stream(connect_to(endpoint, accepted), to_string(endpoint));
  const Transcript transcript = prove_to_acceptor(*stream, key, hello, deadline);
  return with_encryption(std::move(stream), TlsSession::Side::kConnector, key, transcript, deadline);
}

}  // namespace gyre::net
