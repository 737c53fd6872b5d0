#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gyre/store/sources/source.h"

namespace gyre::store {

/// One page of "List Blobs".
struct AzurePage {
  std::vector<Object> objects;  ///< With their whole names; folders of a hierarchical name space are left out.
  std::string next_marker;      ///< Empty on the last page.
};

/// `text` is the server's XML. Error(kProtocol) names `source`.
/// Source: "List Blobs", Azure Storage REST documentation.
AzurePage parse_azure_page(std::string_view text, const std::string& source);

/// The names of an upload's blocks, as "Get Block List" shows them. Error(kProtocol) names `source`.
std::vector<std::string> uncommitted_blocks(std::string_view text, const std::string& source);

}  // namespace gyre::store
