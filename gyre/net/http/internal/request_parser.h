#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "gyre/net/http/message.h"

namespace gyre::net::http::internal {

/// Turns a connection's bytes into one request. Anything that two implementations could read differently is refused, so
/// that nobody can hide one request in another: both Content-Length and Transfer-Encoding, either of them twice,
/// codings other than chunked, folded or bare line ends, a missing Host.
class RequestParser {
 public:
  static constexpr std::size_t kMostFields = 100;

  explicit RequestParser(std::size_t most_header_bytes);
  ~RequestParser();
  RequestParser(const RequestParser&) = delete;
  RequestParser& operator=(const RequestParser&) = delete;

  /// `bytes` is everything that has come and was not consumed yet; the answer says how much of it is consumed now. None
  /// of it while the head is incomplete. HttpError when this cannot become a request; the connection is then of no use.
  std::size_t put(std::string_view bytes);

  bool head_done() const;
  bool done() const;

  // From here on once head_done().
  Request& request() { return request_; }
  std::string_view target_text() const { return target_text_; }
  bool is_head() const { return is_head_; }
  bool http_1_1() const { return http_1_1_; }
  bool keep_alive() const;
  bool has_body() const;
  std::optional<std::uint64_t> content_length() const { return content_length_; }
  /// The client waits for "100 Continue" before it sends the body.
  bool expects_continue() const { return expects_continue_; }
  /// What has come of the body since the last call.
  std::string take_body();

 private:
  class Beast;

  /// Whether all of the head is in `bytes`; checks its characters.
  bool scan_head(std::string_view bytes);
  void check_head();
  void check_framing();

  std::size_t most_header_bytes_;
  std::size_t scanned_ = 0;
  bool first_line_ended_ = false;
  std::unique_ptr<Beast> beast_;
  Request request_;
  std::string target_text_;
  bool is_head_ = false;
  bool http_1_1_ = false;
  bool expects_continue_ = false;
  std::optional<std::uint64_t> content_length_;
};

}  // namespace gyre::net::http::internal
