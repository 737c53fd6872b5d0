#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "gyre/base/bytes.h"
#include "gyre/store/sources/sas.h"
#include "gyre/store/sources/source.h"

namespace gyre::store {

/// A container of Azure Blob Storage, or a part of one.
struct AzurePlace {
  std::string endpoint;  ///< "https://ACCOUNT.blob.core.windows.net", "http://127.0.0.1:10000/ACCOUNT"; no '/' behind.
  std::string account;
  std::string container;
  std::string path;  ///< Of one blob, or of a folder of blobs; without '/' at either end; empty for all.
};

/// Who we are there: a signature, or the account's key, or nobody (public containers).
struct AzureIdentity {
  std::optional<Sas> sas{};
  std::optional<Bytes> key{};  ///< Decoded.
  /// Asked for another SAS when the server refuses one that has expired; may be empty. Called by one thread at a time.
  std::function<std::optional<Sas>()> renew{};
};

std::unique_ptr<Source> open_azure_blob(AzurePlace place, AzureIdentity identity);

}  // namespace gyre::store
