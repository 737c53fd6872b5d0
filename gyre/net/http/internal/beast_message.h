#pragma once

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/optional.hpp>
#include <cstdint>
#include <string>
#include <string_view>

#include "gyre/base/error.h"
#include "gyre/net/http/message.h"

namespace gyre::net::http::internal {

inline std::string to_text(boost::beast::string_view text) { return {text.data(), text.size()}; }

inline constexpr std::size_t kMostHeaderFields = 100;

/// What requests and responses have in common once Beast has taken them apart. Trailers are dropped: nobody asked for
/// them.
template <bool is_request>
class BeastMessage : public boost::beast::http::basic_parser<is_request> {
 public:
  using Failure = boost::beast::error_code;

  Headers headers;
  std::string body;

  /// As put(), of bytes that follow those taken before. put() asserts that who asks again about the last chunk's head
  /// has the 5 bytes that it and what follows it have at least: here it is not asked earlier.
  std::size_t put_some(std::string_view bytes, Failure& failure) {
    if (bytes.size() < needed_bytes_) {
      failure = boost::beast::http::error::need_more;
      return 0;
    }
    const std::size_t taken = this->put(boost::asio::buffer(bytes.data(), bytes.size()), failure);
    const bool waits = taken == 0 && failure == boost::beast::http::error::need_more && this->is_header_done();
    // A whole line that is not enough is the last chunk's head.
    needed_bytes_ = waits && bytes.find("\r\n", 1) != std::string_view::npos ? kLeastLastChunkBytes : 0;
    return taken;
  }

 protected:
  using Text = boost::beast::string_view;

  void on_field_impl(boost::beast::http::field, Text name, Text value, Failure& failure) override {
    if (this->is_header_done()) return;
    if (headers.size() >= kMostHeaderFields) {
      failure = boost::beast::http::error::header_limit;
      return;
    }
    try {
      headers.add(to_text(name), to_text(value));
    } catch (const Error&) {
      failure = boost::beast::http::error::bad_field;
    }
  }
  void on_header_impl(Failure&) override {}
  void on_body_init_impl(const boost::optional<std::uint64_t>&, Failure&) override {}
  std::size_t on_body_impl(Text bytes, Failure&) override {
    body.append(bytes.data(), bytes.size());
    return bytes.size();
  }
  void on_chunk_header_impl(std::uint64_t, Text, Failure&) override {}
  std::size_t on_chunk_body_impl(std::uint64_t, Text bytes, Failure&) override {
    body.append(bytes.data(), bytes.size());
    return bytes.size();
  }
  void on_finish_impl(Failure&) override {}

 private:
  static constexpr std::size_t kLeastLastChunkBytes = 5;  // "0", and two line ends.

  std::size_t needed_bytes_ = 0;
};

}  // namespace gyre::net::http::internal
