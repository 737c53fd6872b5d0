#include "gyre/cli/yaml.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

namespace gyre::cli {

namespace {

using nlohmann::json;

/// Letters first, and then nothing that YAML, in this version or before, gives a meaning.
bool is_plain(std::string_view text) {
  constexpr std::array<std::string_view, 11> kWords = {"true", "false", "null", "yes", "no", "on",
                                                       "off",  "y",     "n",    "inf", "nan"};
  if (text.empty() || text.size() > 200 || std::isalpha(static_cast<unsigned char>(text.front())) == 0) return false;
  const bool known = std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.' || c == '/';
  });
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return known && std::find(kWords.begin(), kWords.end(), lower) == kWords.end();
}

std::string scalar(const json& value) {
  if (value.is_string() && is_plain(value.get_ref<const std::string&>())) return value.get<std::string>();
  // Every text of JSON is one of YAML; ASCII alone, because of the line breaks that only YAML knows.
  return value.dump(-1, ' ', true, json::error_handler_t::replace);
}

bool is_block(const json& value) { return value.is_structured() && !value.empty(); }

void write(const json& value, std::size_t indent, std::string& text) {
  const std::string space(indent, ' ');
  if (value.is_object()) {
    for (const auto& [key, item] : value.items()) {
      text += space + scalar(key) + ":";
      text += is_block(item) ? "\n" : " " + scalar(item) + "\n";
      if (is_block(item)) write(item, indent + (item.is_array() ? 0 : 2), text);
    }
    return;
  }
  for (const json& item : value) {
    if (!is_block(item)) {
      text += space + "- " + scalar(item) + "\n";
      continue;
    }
    std::string inside;
    write(item, indent + 2, inside);
    inside[indent] = '-';  // In place of the first line's spaces.
    text += inside;
  }
}

}  // namespace

std::string to_yaml(const json& value) {
  if (!is_block(value)) return scalar(value) + "\n";
  std::string text;
  write(value, 0, text);
  return text;
}

}  // namespace gyre::cli
