#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "gyre/net/http/message.h"

namespace gyre::net::http::internal {

/// Turns a connection's bytes into one response.
class ResponseParser {
 public:
  static constexpr std::size_t kMostHeaderBytes = 65'536;

  /// `without_body`: the response to a HEAD.
  explicit ResponseParser(bool without_body);
  ~ResponseParser();
  ResponseParser(const ResponseParser&) = delete;
  ResponseParser& operator=(const ResponseParser&) = delete;

  /// As RequestParser::put. Error(kProtocol) when this is not a response.
  std::size_t put(std::string_view bytes);
  /// The server closed the connection. Error(kPeerLost) when the response is not complete by that.
  void put_end();

  bool head_done() const;
  bool done() const;

  // From here on once head_done().
  int status() const;
  Headers& headers();
  bool keep_alive() const;
  std::string take_body();

 private:
  class Beast;
  std::unique_ptr<Beast> beast_;
};

}  // namespace gyre::net::http::internal
