#include "gyre/net/http/utf8.h"

#include <algorithm>
#include <cstdint>

namespace gyre::net::http {
namespace {

struct Lead {
  std::size_t bytes;         // Of the whole character; 0: no character begins so.
  std::uint8_t second_low;   // Range of the second byte, which excludes overlong forms, surrogates and what lies above
  std::uint8_t second_high;  // U+10FFFF.
};

// The Unicode Standard, table 3-7.
Lead classify(std::uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte >= 0xc2 && byte <= 0xdf) return {2, 0x80, 0xbf};
  if (byte == 0xe0) return {3, 0xa0, 0xbf};
  if (byte == 0xed) return {3, 0x80, 0x9f};
  if (byte >= 0xe1 && byte <= 0xef) return {3, 0x80, 0xbf};
  if (byte == 0xf0) return {4, 0x90, 0xbf};
  if (byte >= 0xf1 && byte <= 0xf3) return {4, 0x80, 0xbf};
  if (byte == 0xf4) return {4, 0x80, 0x8f};
  return {0, 0, 0};
}

/// How many of the bytes at `at` fit the beginning of one character; `needed` says of how many it is made.
std::size_t fitting(std::string_view text, std::size_t at, std::size_t& needed) {
  const Lead lead = classify(static_cast<std::uint8_t>(text[at]));
  needed = lead.bytes;
  if (lead.bytes == 0) return 0;
  std::size_t count = 1;
  while (count < lead.bytes && at + count < text.size()) {
    const auto byte = static_cast<std::uint8_t>(text[at + count]);
    const std::uint8_t low = count == 1 ? lead.second_low : 0x80;
    const std::uint8_t high = count == 1 ? lead.second_high : 0xbf;
    if (byte < low || byte > high) break;
    ++count;
  }
  return count;
}

}  // namespace

bool is_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    std::size_t needed = 0;
    const std::size_t count = fitting(text, at, needed);
    if (needed == 0 || count < needed) return false;
    at += count;
  }
  return true;
}

std::size_t whole_characters(std::string_view text) {
  // Only the last three bytes can belong to an incomplete character.
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, text.size()); ++back) {
    const std::size_t at = text.size() - back;
    std::size_t needed = 0;
    const std::size_t count = fitting(text, at, needed);
    if (needed > count && count == back) return at;
  }
  return text.size();
}

}  // namespace gyre::net::http
