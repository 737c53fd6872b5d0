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
  std::string scheme;                   ///< In small letters.
  std::string authority;                ///< "host:port".
  std::string path;                     ///< From its first '/'; empty where there is none.
  std::string query;                    ///< Behind '?', without it.
  std::optional<std::string> fragment;  ///< Behind '#', without it.
  /// Whether %XX in the path stands for another character: in http, https and file. In all other schemes, whose users
  /// write the names of objects as they are (fsspec, AWS CLI), every character stands for itself.
  bool is_encoded = false;
};

/// Nothing for a text that is no "SCHEME://…". Only http and https have queries and fragments; elsewhere '?' and '#'
/// belong to the path, but for a SAS of Azure Storage that is appended to a URL of any other scheme but file.
std::optional<UrlParts> split_url(std::string_view text);

/// Error(kInvalidArgument) for a URL with a fragment, which never reaches a server: it would name another file.
void check_no_fragment(const std::string& url);

/// For messages: without its query, and without a user's name and password.
std::string shown_url(std::string_view url);

/// The path that "file:///PATH" names, decoded; another text is a path itself. Error(kInvalidArgument) for a URL that
/// names a host.
std::string path_of_file_url(const std::string& text);

/// Percent-encoded, RFC 3986's unreserved characters and '/' left as they are.
std::string encode_path(std::string_view path);
/// Only '%', '?' and '#' are encoded: for names that people read, and that are opened again as URLs.
std::string encode_marks(std::string_view path);
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
