#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "gyre/base/clock.h"
#include "gyre/base/file.h"
#include "gyre/net/http/client.h"
#include "gyre/net/http/internal/tls.h"

namespace gyre::net::http::internal {

/// A client's end of a connection: blocking reads and writes under deadlines.
class ClientConnection {
 public:
  /// Error(kAuthentication) where the server is not the one that the options' token is for.
  explicit ClientConnection(const ClientOptions& options);

  /// False when the server has closed it, or sends what nobody asked for.
  bool usable() const;
  /// Error(kPeerLost | kTimeout).
  void write(std::string_view bytes, Deadline deadline);
  int fd() const { return socket_.get(); }
  /// Whether there is something to read that the socket does not show.
  bool has_more() const;
  /// Appends what comes to `buffer`; false when the server has closed the connection.
  bool read(std::string& buffer, Deadline deadline);

 private:
  void wait(short events, Deadline deadline);
  void write_plain(std::string_view bytes, Deadline deadline);
  bool read_plain(std::string& buffer, Deadline deadline);
  void begin_tls(const ClientOptions& options, Deadline deadline);
  /// What TLS has made of our bytes, to the socket.
  void flush_tls(Deadline deadline);

  UniqueFd socket_;
  std::function<void()> meanwhile_;
  TlsContext context_;
  TlsConnection tls_;  // Null: plain.
};

}  // namespace gyre::net::http::internal
