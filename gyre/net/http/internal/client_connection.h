#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "gyre/base/clock.h"
#include "gyre/base/file.h"
#include "gyre/net/endpoint.h"

namespace gyre::net::http::internal {

/// A client's end of a connection: blocking reads and writes under deadlines.
class ClientConnection {
 public:
  /// `meanwhile` as ClientOptions::meanwhile.
  ClientConnection(const Endpoint& endpoint, Deadline deadline, std::function<void()> meanwhile);

  /// False when the server has closed it, or sends what nobody asked for.
  bool usable() const;
  /// Error(kPeerLost | kTimeout).
  void write(std::string_view bytes, Deadline deadline);
  /// Appends what comes to `buffer`; false when the server has closed the connection.
  bool read(std::string& buffer, Deadline deadline);

 private:
  void wait(short events, Deadline deadline);

  UniqueFd socket_;
  std::function<void()> meanwhile_;
};

}  // namespace gyre::net::http::internal
