#include "gyre/jobs/client/secrets_in_code.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

namespace gyre::jobs::client {

namespace {

using Json = nlohmann::json;

constexpr std::size_t kDigits = 64;  // Of a user's token, and of the node programs' key.
constexpr std::size_t kKeyBytes = 32;
/// A file that `gyre user create --to` or `gyre server` writes is much shorter.
constexpr std::size_t kMostServerFileBytes = 4096;

bool is_64_digits(std::string_view text) {
  return text.size() == kDigits && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

bool is_server_file(std::string_view content) {
  if (content.size() > kMostServerFileBytes) return false;
  const Json json = Json::parse(content, nullptr, false);
  if (!json.is_object() || !json.contains("server") || !json.contains("token")) return false;
  const Json& token = json["token"];
  return token.is_string() && is_64_digits(token.get_ref<const std::string&>());
}

bool is_named_secret(std::string_view name) {
  std::string lower(name);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower.find("token") != std::string::npos || lower.find("key") != std::string::npos;
}

bool is_text(std::string_view content) {
  return std::ranges::all_of(content,
                             [](unsigned char c) { return (c >= 0x20 && c < 0x7f) || c == '\n' || c == '\t'; });
}

}  // namespace

std::string_view secret_in(std::string_view name, bool is_private, std::string_view content) {
  if (is_server_file(content)) return "a token for a job server";
  std::string_view line = content;
  while (line.ends_with('\n') || line.ends_with('\r')) line.remove_suffix(1);
  if (is_64_digits(line) && (is_private || is_named_secret(name))) return "a token or a key of Gyre";
  if (is_private && content.size() == kKeyBytes && !is_text(content)) return "a key such as GYRE_KEY_FILE names";
  return {};
}

}  // namespace gyre::jobs::client
