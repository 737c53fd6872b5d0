#include "gyre/jobs/client/secrets_in_code.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

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

/// Of base64; characters that are none of its own are passed over.
std::string decoded(std::string_view text) {
  constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  std::uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const std::size_t value = kAlphabet.find(c);
    if (value == std::string_view::npos) continue;
    bits = (bits << 6) | static_cast<std::uint32_t>(value);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes += static_cast<char>(bits >> count & 0xff);
  }
  return bytes;
}

/// As `gyre server` writes into tls.pem. Keys of others are not ours to judge: code comes with those of its tests.
bool is_server_key(std::string_view content) {
  constexpr std::string_view kBegin = "-----BEGIN CERTIFICATE-----";
  constexpr std::string_view kSubject = "gyre server";
  if (content.size() > kMostServerFileBytes) return false;
  const std::size_t begin = content.find(kBegin);
  if (begin == std::string_view::npos || content.find("PRIVATE KEY-----") == std::string_view::npos) return false;
  const std::string_view body = content.substr(begin + kBegin.size());
  return decoded(body.substr(0, body.find('-'))).find(kSubject) != std::string::npos;
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
  if (is_server_key(content)) return "the private key of a job server";
  std::string_view line = content;
  while (line.ends_with('\n') || line.ends_with('\r')) line.remove_suffix(1);
  if (is_64_digits(line) && (is_private || is_named_secret(name))) return "a token or a key of Gyre";
  if (is_private && content.size() == kKeyBytes && !is_text(content)) return "a key such as GYRE_KEY_FILE names";
  return {};
}

}  // namespace gyre::jobs::client
