#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gyre/base/bytes.h"

namespace gyre::store {

/// A URL's pieces, as they stand in it: nothing is decoded.
struct UrlParts {
  std::string scheme;     ///< In small letters.
  std::string authority;  ///< "host:port".
  std::string path;       ///< From its first '/'; empty where there is none.
  std::string query;      ///< Behind '?', without it.
};

/// Nothing for a text that is no "SCHEME://…".
std::optional<UrlParts> split_url(std::string_view text);

/// For messages: without its query, and without a user's name and password.
std::string shown_url(std::string_view url);

/// Percent-encoded, RFC 3986's unreserved characters and '/' left as they are.
std::string encode_path(std::string_view path);
/// Everything but the unreserved ones.
std::string encode_component(std::string_view text);
/// Once. What is not a whole encoding stays as it is.
std::string decode(std::string_view text);

/// "a=1&b=x%20y", decoded, in their order; a name without '=' has an empty value.
std::vector<std::pair<std::string, std::string>> parse_query(std::string_view query);

/// Whether a text is a date as HTTP's headers have it: "Thu, 26 Nov 2026 12:00:00 GMT".
bool is_http_date(std::string_view text);

/// Nothing where it is not whole.
std::optional<Bytes> decode_base64(std::string_view text);
/// Two small digits a byte.
std::string hex_of(std::span<const std::byte> bytes);
std::string encode_base64(std::span<const std::byte> bytes);

}  // namespace gyre::store
