#include "gyre/base/parse.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <limits>

#include "gyre/base/error.h"

namespace gyre {

std::int64_t parse_integer(std::string_view text, std::string_view what, std::int64_t low, std::int64_t high) {
  std::int64_t value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc() || end != text.data() + text.size() || value < low || value > high) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} is '{}'; a whole number from {} to {} is needed", what, text, low, high));
  }
  return value;
}

std::uint64_t parse_bytes(std::string_view text, std::string_view what) {
  std::uint64_t value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  std::string suffix(end, text.data() + text.size());
  std::erase(suffix, ' ');
  std::transform(suffix.begin(), suffix.end(), suffix.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  if (suffix.ends_with('B')) suffix.pop_back();
  const std::string_view units = "KMGT";
  const auto power = suffix.empty() ? 0 : units.find(suffix.front()) + 1;
  const bool known = suffix.empty() || (suffix.size() == 1 && power > 0);
  if (status != std::errc() || !known || value > (std::numeric_limits<std::uint64_t>::max() >> (10 * power))) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} is '{}'; a size like 64MB, 256KB or 0 is needed", what, text));
  }
  return value << (10 * power);
}

bool parse_bool(std::string_view text, std::string_view what) {
  if (text == "1" || text == "true" || text == "on" || text == "yes") return true;
  if (text == "0" || text == "false" || text == "off" || text == "no") return false;
  throw Error(ErrorCode::kInvalidArgument, fmt::format("{} is '{}'; true or false is needed", what, text));
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  std::size_t start = 0;
  for (;;) {
    const std::size_t end = text.find(separator, start);
    parts.emplace_back(text.substr(start, end - start));
    if (end == std::string_view::npos) return parts;
    start = end + 1;
  }
}

std::optional<std::string> environment_variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

}  // namespace gyre
