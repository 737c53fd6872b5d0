#include "gyre/net/http/internal/request_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "gyre/net/http/error.h"
#include "gyre/net/http/internal/beast_message.h"

namespace gyre::net::http::internal {
namespace {

namespace beast = boost::beast;
using BeastError = beast::http::error;

/// Besides the target: the longest method and version.
constexpr std::size_t kMostLineBytes = kMostTargetBytes + 64;

HttpError malformed(std::string_view what) {
  return {400, "MalformedRequest", fmt::format("the request cannot be read: {}", what)};
}

HttpError failure_of(const beast::error_code& failure) {
  if (failure == BeastError::bad_version) {
    return {505, "VersionNotSupported", "this server speaks HTTP/1.0 and HTTP/1.1"};
  }
  if (failure == BeastError::header_limit) return {431, "HeadersTooLarge", "the request's headers are too large"};
  return malformed(failure.message());
}

}  // namespace

class RequestParser::Beast : public BeastMessage<true> {
 public:
  std::string method;
  std::string target;
  int version = 0;

 private:
  void on_request_impl(beast::http::verb, Text method_text, Text target_text, int request_version, Failure&) override {
    method = to_text(method_text);
    target = to_text(target_text);
    version = request_version;
  }
  void on_response_impl(int, Text, int, Failure&) override {}
};

static_assert(kMostHeaderFields == RequestParser::kMostFields);

RequestParser::RequestParser(std::size_t most_header_bytes)
    : most_header_bytes_(most_header_bytes), beast_(std::make_unique<Beast>()) {
  beast_->header_limit(static_cast<std::uint32_t>(most_header_bytes + 1));
  beast_->body_limit(boost::none);  // The route decides, once the head is read.
}

RequestParser::~RequestParser() = default;

bool RequestParser::head_done() const { return beast_->is_header_done(); }
bool RequestParser::done() const { return beast_->is_done(); }
bool RequestParser::keep_alive() const { return beast_->keep_alive(); }
bool RequestParser::has_body() const { return beast_->chunked() || content_length_.value_or(0) > 0; }
std::string RequestParser::take_body() { return std::exchange(beast_->body, {}); }

std::size_t RequestParser::put(std::string_view bytes) {
  const bool in_head = !head_done();
  if (in_head && !scan_head(bytes)) return 0;
  // What follows the head has no say in how the head is read, whether it is here already or not.
  if (in_head) bytes = bytes.substr(0, scanned_ + 1);
  beast::error_code failure;
  std::size_t consumed = 0;
  while (consumed < bytes.size() && !done() && head_done() != in_head) {
    consumed += beast_->put_some(bytes.substr(consumed), failure);
    if (failure == BeastError::need_more) break;
    if (failure) throw failure_of(failure);
  }
  if (in_head) {
    if (!head_done()) throw malformed("the head is incomplete");
    check_head();
    beast_->eager(true);
  }
  return consumed;
}

bool RequestParser::scan_head(std::string_view bytes) {
  for (; scanned_ < bytes.size(); ++scanned_) {
    const char c = bytes[scanned_];
    const char before = scanned_ == 0 ? '\0' : bytes[scanned_ - 1];
    if (scanned_ == 0 && (c < 'A' || c > 'Z')) throw malformed("it does not begin with a method");
    if ((c == '\n') != (before == '\r')) throw malformed("a line does not end with CR LF");
    if (static_cast<unsigned char>(c) < 0x20 && c != '\r' && c != '\n' && c != '\t') {
      throw malformed("its head has control characters");
    }
    const bool at_line_start = scanned_ >= 2 && before == '\n';
    if (at_line_start && (c == ' ' || c == '\t')) throw malformed("a header is continued on the next line");
    if (c == '\n') first_line_ended_ = true;
    if (c == '\n' && scanned_ >= 3 && bytes[scanned_ - 2] == '\n') return true;
    if (!first_line_ended_ && scanned_ > kMostLineBytes) {
      throw HttpError(414, "TargetTooLong",
                      fmt::format("the request's target is longer than {} bytes", kMostTargetBytes));
    }
    if (scanned_ >= most_header_bytes_) {
      throw HttpError(431, "HeadersTooLarge",
                      fmt::format("the request's headers are larger than {} bytes", most_header_bytes_));
    }
  }
  return false;
}

void RequestParser::check_head() {
  request_.headers = std::move(beast_->headers);
  http_1_1_ = beast_->version == 11;
  target_text_ = std::move(beast_->target);
  is_head_ = beast_->method == "HEAD";
  request_.method = parse_method(beast_->method);
  const std::size_t hosts = request_.headers.count("Host");
  if (hosts > 1 || (http_1_1_ && hosts == 0)) throw malformed("it needs exactly one Host header");
  check_framing();
  if (const std::string* expected = request_.headers.find("Expect"); expected != nullptr && http_1_1_) {
    if (!equal_without_case(*expected, "100-continue")) {
      throw HttpError(417, "ExpectationFailed", "the only expectation that can be met is 100-continue", "Expect");
    }
    expects_continue_ = true;
  }
  request_.target = parse_target(target_text_);
}

void RequestParser::check_framing() {
  const std::size_t lengths = request_.headers.count("Content-Length");
  const std::size_t codings = request_.headers.count("Transfer-Encoding");
  if (lengths > 1 || codings > 1 || (lengths > 0 && codings > 0)) {
    throw malformed("it says more than once how long its body is");
  }
  if (codings > 0) {
    if (!http_1_1_) throw malformed("HTTP/1.0 has no Transfer-Encoding");
    if (!equal_without_case(*request_.headers.find("Transfer-Encoding"), "chunked")) {
      throw HttpError(501, "CodingNotSupported", "the only transfer coding is chunked", "Transfer-Encoding");
    }
  }
  if (lengths == 0) return;
  const std::string& text = *request_.headers.find("Content-Length");
  std::uint64_t length = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), length);
  if (failure != std::errc() || end != text.data() + text.size()) throw malformed("Content-Length is not a number");
  content_length_ = length;
}

}  // namespace gyre::net::http::internal
