#pragma once

#include <string>
#include <utility>
#include <vector>

#include "gyre/base/bytes.h"

namespace gyre::store {

/// What a GET or HEAD without a body is signed with.
struct SharedKeyRequest {
  std::string method;
  std::string path;                                          ///< Of the URL, encoded, with its first '/'.
  std::vector<std::pair<std::string, std::string>> query;    ///< Decoded.
  std::vector<std::pair<std::string, std::string>> headers;  ///< Those that begin with "x-ms-", in small letters.
  std::string range{};                                       ///< The header Range; empty where there is none.
  std::string if_match{};                                    ///< The header If-Match.
};

/// The value of the header Authorization. `key`: decoded.
/// Source: "Authorize with Shared Key", Azure Storage REST documentation.
std::string shared_key_authorization(const std::string& account, const Bytes& key, const SharedKeyRequest& request);

}  // namespace gyre::store
