#pragma once

#include <sys/socket.h>

namespace gyre::jobs::orders {

/// Makes close() of a TCP socket reset its connection: what both ends of a stream (byte_stream.h) do when it ends
/// early, so that nobody takes a part for the whole.
inline void reset_when_closed(int socket) {
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(socket, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}

}  // namespace gyre::jobs::orders
