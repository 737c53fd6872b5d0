#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gyre::net::http {

/// What a request asks for: the path and the query of its request line, decoded.
struct Target {
  /// Valid UTF-8, never empty, never "." or "..", without '/', '\' or control characters. "/" has none.
  std::vector<std::string> segments;
  /// In their order; names are not empty and occur once.
  std::vector<std::pair<std::string, std::string>> query;

  friend bool operator==(const Target&, const Target&) = default;
};

constexpr std::size_t kMostTargetBytes = 8'192;
constexpr std::size_t kMostSegments = 128;
constexpr std::size_t kMostQueryParameters = 32;

/// "/jobs/a%20b?follow=true". Strict: HttpError(400) names what is wrong with anything that two readers could
/// understand in two ways, so that no path leads out of where it starts: empty and dotted segments, encoded separators,
/// incomplete or invalid encodings, control characters, a parameter without '=' or given twice. In the query '+' is a
/// space.
Target parse_target(std::string_view text);

/// The text that parse_target() turns into `target`.
std::string to_string(const Target& target);

/// Percent-encodes everything but RFC 3986's unreserved characters.
std::string percent_encode(std::string_view text);

}  // namespace gyre::net::http
