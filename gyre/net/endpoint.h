#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace gyre::net {

/// Where somebody listens: "unix:@NAME" (Linux' abstract namespace: no file, gone with its owner),
/// "unix:/PATH" or "tcp:HOST:PORT" ("tcp:[::1]:PORT" for IPv6; port 0 asks for a free one).
struct Endpoint {
  enum class Kind : std::uint8_t { kUnix, kTcp };

  Kind kind = Kind::kUnix;
  std::string host;  ///< Host name or address; for unix the path, or '@' and the abstract name.
  std::uint16_t port = 0;

  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

/// Error(kInvalidArgument) shows the text and the accepted forms.
Endpoint parse_endpoint(std::string_view text);
std::string to_string(const Endpoint& endpoint);

}  // namespace gyre::net
