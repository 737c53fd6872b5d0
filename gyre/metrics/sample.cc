#include "gyre/metrics/sample.h"

#include <fmt/format.h>

#include <algorithm>

#include "gyre/base/error.h"

namespace gyre::metrics {
namespace {

/// How many bytes the character takes that begins with `first`; 0 where none does.
std::size_t utf8_length(unsigned char first) {
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first < 0xE0) return 2;
  if (first >= 0xE0 && first < 0xF0) return 3;
  return first >= 0xF0 && first < 0xF5 ? 4 : 0;
}

/// Overlong forms, surrogates, and what is above U+10FFFF.
bool is_forbidden(unsigned char first, unsigned char second) {
  return (first == 0xE0 && second < 0xA0) || (first == 0xED && second >= 0xA0) || (first == 0xF0 && second < 0x90) ||
         (first == 0xF4 && second >= 0x90);
}

bool is_control(std::string_view character) {
  const auto first = static_cast<unsigned char>(character.front());
  const bool is_c1 = first == 0xC2 && static_cast<unsigned char>(character[1]) < 0xA0;
  return first < 0x20 || first == 0x7F || is_c1;
}

bool is_plain_utf8(std::string_view text) {
  while (!text.empty()) {
    const auto first = static_cast<unsigned char>(text.front());
    const std::size_t length = utf8_length(first);
    if (length == 0 || length > text.size()) return false;
    const std::string_view rest = text.substr(1, length - 1);
    if (!std::ranges::all_of(rest, [](char each) { return (static_cast<unsigned char>(each) & 0xC0) == 0x80; })) {
      return false;
    }
    if (length > 2 && is_forbidden(first, static_cast<unsigned char>(rest.front()))) return false;
    if (is_control(text.substr(0, length))) return false;
    text.remove_prefix(length);
  }
  return true;
}

}  // namespace

bool is_name(std::string_view text) { return !text.empty() && text.size() <= kLongestName && is_plain_utf8(text); }

void check_users_name(std::string_view name) {
  if (!is_name(name)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("the name of a metric is 1 to {} bytes of UTF-8 without control characters; this one has "
                            "{} bytes",
                            kLongestName, name.size()));
  }
  if (name.starts_with(kReservedPrefix)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("metrics under '{}' are Gyre's own; choose another name than '{}'", kReservedPrefix, name));
  }
}

}  // namespace gyre::metrics
