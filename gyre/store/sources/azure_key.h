#pragma once

#include <string>
#include <utility>
#include <vector>

#include "gyre/base/bytes.h"

namespace gyre::store {

/// What a request is signed with.
struct SharedKeyRequest {
  std::string method;
  std::string path;                                          ///< Of the URL, encoded, with its first '/'.
  std::vector<std::pair<std::string, std::string>> query;    ///< Decoded.
  std::vector<std::pair<std::string, std::string>> headers;  ///< Those that begin with "x-ms-", in small letters.
  std::string range{};                                       ///< The header Range; empty where there is none.
  std::string if_match{};                                    ///< The header If-Match.
  std::string length{};                                      ///< The header Content-Length; empty for no body, or 0.
  std::string md5{};                                         ///< The header Content-MD5.
};

/// The value of the header Authorization. `key`: decoded.
/// Source: "Authorize with Shared Key", Azure Storage REST documentation.
std::string shared_key_authorization(const std::string& account, const Bytes& key, const SharedKeyRequest& request);

}  // namespace gyre::store
