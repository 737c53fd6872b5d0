#include "gyre/store/sources/azure_key.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "gyre/base/checksum.h"
#include "gyre/store/sources/text.h"

namespace gyre::store {

std::string shared_key_authorization(const std::string& account, const Bytes& key, const SharedKeyRequest& request) {
  // Content-Encoding, -Language, -Type and Date are empty; so are the other conditions.
  std::string text = fmt::format("{}\n\n\n{}\n{}\n\n\n\n{}\n\n\n{}\n", request.method, request.length, request.md5,
                                 request.if_match, request.range);
  auto headers = request.headers;
  std::ranges::sort(headers);
  for (const auto& [name, value] : headers) text += fmt::format("{}:{}\n", name, value);
  text += fmt::format("/{}{}", account, request.path);
  auto query = request.query;
  for (auto& [name, value] : query) {
    std::ranges::transform(name, name.begin(), [](char letter) {
      return static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
    });
  }
  std::ranges::sort(query);
  for (const auto& [name, value] : query) text += fmt::format("\n{}:{}", name, value);
  const Sha256 signature = hmac_sha256(key, as_bytes(text));
  return fmt::format("SharedKey {}:{}", account, encode_base64(signature));
}

}  // namespace gyre::store
