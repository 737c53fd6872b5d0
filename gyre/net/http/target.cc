#include "gyre/net/http/target.h"

#include <fmt/format.h>

#include <algorithm>

#include "gyre/net/http/error.h"
#include "gyre/net/http/utf8.h"

namespace gyre::net::http {
namespace {

HttpError invalid(std::string_view what) {
  return {400, "InvalidTarget", fmt::format("the request's target is not valid: {}", what)};
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool is_unreserved(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '.' ||
         c == '_' || c == '~';
}

/// What RFC 3986 lets stand unencoded in a segment or a query.
bool may_stand(char c) { return is_unreserved(c) || std::string_view("!$&'()*+,;=:@/?").find(c) != std::string::npos; }

std::string decode(std::string_view text, bool plus_is_space) {
  std::string decoded;
  decoded.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%') {
      const int high = i + 1 < text.size() ? hex_digit(text[i + 1]) : -1;
      const int low = i + 2 < text.size() ? hex_digit(text[i + 2]) : -1;
      if (high < 0 || low < 0) throw invalid("'%' is not followed by two hexadecimal digits");
      decoded.push_back(static_cast<char>(high * 16 + low));
      i += 2;
    } else if (!may_stand(text[i])) {
      throw invalid("a character that must be percent-encoded is not");
    } else {
      decoded.push_back(plus_is_space && text[i] == '+' ? ' ' : text[i]);
    }
  }
  if (!is_utf8(decoded)) throw invalid("it does not decode to UTF-8");
  return decoded;
}

bool has_control_characters(std::string_view text) {
  return std::any_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

std::string decode_segment(std::string_view text) {
  std::string segment = decode(text, false);
  if (segment.empty()) throw invalid("a segment of the path is empty");
  if (segment == "." || segment == "..") throw invalid("'.' and '..' are not allowed in a path");
  if (segment.find_first_of("/\\") != std::string::npos) throw invalid("a segment contains '/' or '\\'");
  if (has_control_characters(segment)) throw invalid("a segment contains control characters");
  return segment;
}

std::vector<std::string_view> split_views(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (std::size_t at = 0;;) {
    const std::size_t next = text.find(separator, at);
    parts.push_back(text.substr(at, next - at));
    if (next == std::string_view::npos) return parts;
    at = next + 1;
  }
}

std::pair<std::string, std::string> decode_parameter(std::string_view text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos) throw invalid("a parameter of the query has no '='");
  std::pair parameter{decode(text.substr(0, equals), true), decode(text.substr(equals + 1), true)};
  if (parameter.first.empty()) throw invalid("a parameter of the query has no name");
  if (has_control_characters(parameter.first) || has_control_characters(parameter.second)) {
    throw invalid("the query contains control characters");
  }
  return parameter;
}

}  // namespace

Target parse_target(std::string_view text) {
  if (text.size() > kMostTargetBytes) {
    throw HttpError(414, "TargetTooLong",
                    fmt::format("the request's target is longer than {} bytes", kMostTargetBytes));
  }
  if (!text.starts_with('/')) throw invalid("it does not start with '/'");
  Target target;
  const std::size_t mark = text.find('?');
  const std::string_view path = text.substr(1, mark == std::string_view::npos ? mark : mark - 1);
  if (!path.empty()) {
    const auto parts = split_views(path, '/');
    if (parts.size() > kMostSegments) throw invalid(fmt::format("the path has more than {} segments", kMostSegments));
    for (const std::string_view part : parts) target.segments.push_back(decode_segment(part));
  }
  if (mark == std::string_view::npos || mark + 1 == text.size()) return target;
  const auto parts = split_views(text.substr(mark + 1), '&');
  if (parts.size() > kMostQueryParameters) {
    throw invalid(fmt::format("the query has more than {} parameters", kMostQueryParameters));
  }
  for (const std::string_view part : parts) {
    auto parameter = decode_parameter(part);
    for (const auto& [name, value] : target.query) {
      if (name == parameter.first) throw invalid(fmt::format("the query's parameter '{}' is given twice", name));
    }
    target.query.push_back(std::move(parameter));
  }
  return target;
}

std::string to_string(const Target& target) {
  std::string text;
  for (const std::string& segment : target.segments) text += "/" + percent_encode(segment);
  if (text.empty()) text = "/";
  char separator = '?';
  for (const auto& [name, value] : target.query) {
    text += fmt::format("{}{}={}", separator, percent_encode(name), percent_encode(value));
    separator = '&';
  }
  return text;
}

std::string percent_encode(std::string_view text) {
  std::string encoded;
  for (const char c : text) {
    if (is_unreserved(c)) {
      encoded.push_back(c);
    } else {
      encoded += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return encoded;
}

}  // namespace gyre::net::http
