#include "gyre/jobs/spec/internal/utf8.h"

#include <algorithm>
#include <cstdint>

namespace gyre::jobs::spec {

bool is_continuation(char byte) { return (static_cast<std::uint8_t>(byte) & 0xC0) == 0x80; }

std::size_t character_bytes(std::string_view text) {
  const auto first = static_cast<std::uint8_t>(text.front());
  if (first < 0x80) return 1;
  const std::size_t bytes = first >= 0xC2 && first < 0xE0   ? 2
                            : (first & 0xF0) == 0xE0        ? 3
                            : first >= 0xF0 && first < 0xF5 ? 4
                                                            : 0;
  if (bytes == 0 || text.size() < bytes) return 0;
  if (!std::all_of(text.begin() + 1, text.begin() + static_cast<std::ptrdiff_t>(bytes), is_continuation)) return 0;
  const auto second = static_cast<std::uint8_t>(text[1]);
  const bool overlong = (first == 0xE0 && second < 0xA0) || (first == 0xF0 && second < 0x90);
  const bool no_character = (first == 0xED && second >= 0xA0) || (first == 0xF4 && second >= 0x90);
  return overlong || no_character ? 0 : bytes;
}

}  // namespace gyre::jobs::spec
