#include "gyre/net/http/internal/response_parser.h"

#include <fmt/format.h>

#include <utility>

#include "gyre/base/error.h"
#include "gyre/net/http/internal/beast_message.h"

namespace gyre::net::http::internal {
namespace {

namespace beast = boost::beast;
using BeastError = beast::http::error;

Error malformed_response(std::string_view why) {
  return {ErrorCode::kProtocol, fmt::format("the server's response cannot be read: {}", why)};
}

}  // namespace

class ResponseParser::Beast : public BeastMessage<false> {
 public:
  int status = 0;

 private:
  void on_request_impl(beast::http::verb, Text, Text, int, Failure&) override {}
  void on_response_impl(int code, Text, int, Failure&) override { status = code; }
};

ResponseParser::ResponseParser(bool without_body) : beast_(std::make_unique<Beast>()) {
  beast_->header_limit(kMostHeaderBytes);
  beast_->body_limit(boost::none);  // The client counts.
  beast_->skip(without_body);
}

ResponseParser::~ResponseParser() = default;

bool ResponseParser::head_done() const { return beast_->is_header_done(); }
bool ResponseParser::done() const { return beast_->is_done(); }
int ResponseParser::status() const { return beast_->status; }
Headers& ResponseParser::headers() { return beast_->headers; }
bool ResponseParser::keep_alive() const { return beast_->keep_alive(); }
std::string ResponseParser::take_body() { return std::exchange(beast_->body, {}); }

std::size_t ResponseParser::put(std::string_view bytes) {
  std::size_t consumed = 0;
  const bool in_head = !head_done();
  while (consumed < bytes.size() && !done() && head_done() != in_head) {
    beast::error_code failure;
    consumed += beast_->put_some(bytes.substr(consumed), failure);
    if (failure == BeastError::need_more) break;
    if (failure) throw malformed_response(failure.message());
  }
  if (in_head && head_done() && !done()) beast_->eager(true);
  return consumed;
}

void ResponseParser::put_end() {
  beast::error_code failure = BeastError::partial_message;
  if (beast_->got_some()) beast_->put_eof(failure);
  if (failure) throw Error(ErrorCode::kPeerLost, "the server closed the connection before its response was complete");
}

}  // namespace gyre::net::http::internal
