#include "gyre/store/sources/text.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <cctype>

#include "gyre/base/error.h"

namespace gyre::store {

namespace {

bool is_unreserved(char letter) {
  return (letter >= 'A' && letter <= 'Z') || (letter >= 'a' && letter <= 'z') || (letter >= '0' && letter <= '9') ||
         letter == '-' || letter == '.' || letter == '_' || letter == '~';
}

std::string encode(std::string_view text, bool slashes_too) {
  std::string encoded;
  for (const char letter : text) {
    if (is_unreserved(letter) || (letter == '/' && !slashes_too)) {
      encoded += letter;
    } else {
      encoded += fmt::format("%{:02X}", static_cast<unsigned char>(letter));
    }
  }
  return encoded;
}

int digit(char letter) {
  if (letter >= '0' && letter <= '9') return letter - '0';
  if (letter >= 'a' && letter <= 'f') return letter - 'a' + 10;
  if (letter >= 'A' && letter <= 'F') return letter - 'A' + 10;
  return -1;
}

/// Whether a SAS follows, whole or cut off, and not the rest of a name.
bool is_sas(std::string_view query) {
  return std::ranges::any_of(parse_query(query), [](const auto& field) {
    return (field.first == "sig" || field.first == "sv") && !field.second.empty();
  });
}

/// Where the '?' stands behind which a SAS follows; the end where there is none.
std::size_t sas_begin(std::string_view text) {
  const std::size_t question = text.rfind('?');
  return question != std::string_view::npos && is_sas(text.substr(question + 1)) ? question : text.size();
}

/// Cuts `text` off before the mark at `at`, and returns what follows the mark; nothing where there is none.
std::optional<std::string> cut_off(std::string_view& text, std::size_t at) {
  if (at >= text.size()) return std::nullopt;
  std::string rest(text.substr(at + 1));
  text = text.substr(0, at);
  return rest;
}

}  // namespace

std::optional<UrlParts> split_url(std::string_view text) {
  const std::size_t colon = text.find("://");
  if (colon == std::string_view::npos || colon == 0) return std::nullopt;
  UrlParts parts;
  for (const char letter : text.substr(0, colon)) {
    if (std::isalnum(static_cast<unsigned char>(letter)) == 0 && letter != '+') return std::nullopt;
    parts.scheme += static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  }
  text.remove_prefix(colon + 3);
  const bool is_http = parts.scheme == "http" || parts.scheme == "https";
  parts.is_encoded = is_http || parts.scheme == "file";
  if (is_http) {
    parts.fragment = cut_off(text, text.find('#'));
    parts.query = cut_off(text, text.find('?')).value_or("");
  } else if (!parts.is_encoded) {
    parts.query = cut_off(text, sas_begin(text)).value_or("");
  }
  const std::size_t slash = std::min(text.find('/'), text.size());
  parts.authority = text.substr(0, slash);
  parts.path = text.substr(slash);
  return parts;
}

std::string shown_url(std::string_view url) {
  const auto parts = split_url(url);
  if (!parts) return std::string(url.substr(0, sas_begin(url)));
  const std::size_t at = parts->authority.rfind('@');
  return parts->scheme + "://" + parts->authority.substr(at == std::string::npos ? 0 : at + 1) + parts->path;
}

void check_no_fragment(const std::string& url) {
  const auto parts = split_url(url);
  if (!parts || !parts->fragment) return;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("'{}#{}': a URL's part from '#' on never reaches the server; write %23 for a '#' in a name",
                          shown_url(url), parts->fragment->substr(0, parts->fragment->find('?'))));
}

std::string path_of_file_url(const std::string& text) {
  const auto url = split_url(text);
  if (!url || url->scheme != "file") return text;
  if (!url->authority.empty() && url->authority != "localhost") {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("'{}' names a file of the host '{}'; write file:///PATH, with three slashes", text,
                            url->authority));
  }
  return decode(url->path);
}

std::string encode_path(std::string_view path) { return encode(path, false); }

std::string encode_marks(std::string_view path) {
  std::string encoded;
  for (const char letter : path) {
    const bool is_mark = letter == '%' || letter == '?' || letter == '#';
    encoded += is_mark ? encode(std::string_view(&letter, 1), true) : std::string(1, letter);
  }
  return encoded;
}

std::string encode_component(std::string_view text) { return encode(text, true); }

std::string decode(std::string_view text) {
  std::string decoded;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && digit(text[i + 1]) >= 0 && digit(text[i + 2]) >= 0) {
      decoded += static_cast<char>(digit(text[i + 1]) * 16 + digit(text[i + 2]));
      i += 2;
    } else {
      decoded += text[i];
    }
  }
  return decoded;
}

std::vector<std::pair<std::string, std::string>> parse_query(std::string_view query) {
  std::vector<std::pair<std::string, std::string>> parameters;
  while (!query.empty()) {
    const std::string_view one = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(one.size() + 1, query.size()));
    if (one.empty()) continue;
    const std::size_t equals = std::min(one.find('='), one.size());
    parameters.emplace_back(decode(one.substr(0, equals)), decode(one.substr(std::min(equals + 1, one.size()))));
  }
  return parameters;
}

bool is_http_date(std::string_view text) {
  constexpr std::string_view kForm = "Www, 00 Mmm 0000 00:00:00 GMT";
  constexpr auto fits = [](char letter, char form) {
    if (form == '0') return letter >= '0' && letter <= '9';
    if (form == 'W' || form == 'M') return letter >= 'A' && letter <= 'Z';
    if (form == 'w' || form == 'm') return letter >= 'a' && letter <= 'z';
    return letter == form;
  };
  return std::ranges::equal(text.substr(0, kForm.find("GMT")), kForm.substr(0, kForm.find("GMT")), fits) &&
         text.ends_with(" GMT") && text.size() == kForm.size();
}

std::optional<Bytes> decode_base64(std::string_view text) {
  if (text.empty() || text.size() % 4 != 0) return std::nullopt;
  std::vector<unsigned char> room(text.size() / 4 * 3);
  const int count = ::EVP_DecodeBlock(room.data(), reinterpret_cast<const unsigned char*>(text.data()),
                                      static_cast<int>(text.size()));
  if (count < 0) return std::nullopt;
  const auto padding = static_cast<std::size_t>(std::ranges::count(text.substr(text.size() - 2), '='));
  Bytes bytes(static_cast<std::size_t>(count) - padding);
  std::transform(room.begin(), room.begin() + static_cast<std::ptrdiff_t>(bytes.size()), bytes.begin(),
                 [](unsigned char one) { return std::byte{one}; });
  return bytes;
}

std::string hex_of(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned>(byte));
  return text;
}

std::string encode_base64(std::span<const std::byte> bytes) {
  std::string text((bytes.size() + 2) / 3 * 4 + 1, '\0');  // EVP_EncodeBlock ends it with a zero byte.
  const int count =
      ::EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                        reinterpret_cast<const unsigned char*>(bytes.data()), static_cast<int>(bytes.size()));
  text.resize(static_cast<std::size_t>(count));
  return text;
}

}  // namespace gyre::store
