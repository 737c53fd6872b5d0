#include "gyre/net/http/internal/response_parser.h"

#include <fmt/format.h>

#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>
#include <utility>

#include "gyre/base/error.h"

namespace gyre::net::http::internal {
namespace {

namespace beast = boost::beast;
using BeastError = beast::http::error;

std::string to_text(beast::string_view text) { return {text.data(), text.size()}; }

Error malformed(std::string_view why) {
  return {ErrorCode::kProtocol, fmt::format("the server's response cannot be read: {}", why)};
}

}  // namespace

class ResponseParser::Beast : public beast::http::basic_parser<false> {
 public:
  int status = 0;
  Headers headers;
  std::string body;

 private:
  void on_request_impl(beast::http::verb, beast::string_view, beast::string_view, int, beast::error_code&) override {}
  void on_response_impl(int code, beast::string_view, int, beast::error_code&) override { status = code; }
  void on_field_impl(beast::http::field, beast::string_view name, beast::string_view value,
                     beast::error_code& failure) override {
    if (is_header_done()) return;  // A trailer.
    try {
      headers.add(to_text(name), to_text(value));
    } catch (const Error&) {
      failure = BeastError::bad_field;
    }
  }
  void on_header_impl(beast::error_code&) override {}
  void on_body_init_impl(const boost::optional<std::uint64_t>&, beast::error_code&) override {}
  std::size_t on_body_impl(beast::string_view bytes, beast::error_code&) override {
    body.append(bytes.data(), bytes.size());
    return bytes.size();
  }
  void on_chunk_header_impl(std::uint64_t, beast::string_view, beast::error_code&) override {}
  std::size_t on_chunk_body_impl(std::uint64_t, beast::string_view bytes, beast::error_code&) override {
    body.append(bytes.data(), bytes.size());
    return bytes.size();
  }
  void on_finish_impl(beast::error_code&) override {}
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
    consumed += beast_->put(boost::asio::buffer(bytes.data() + consumed, bytes.size() - consumed), failure);
    if (failure == BeastError::need_more) break;
    if (failure) throw malformed(failure.message());
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
