#include "gyre/store/sources/azure_listing.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <pugixml.hpp>

#include "gyre/base/error.h"
#include "gyre/store/sources/text.h"

namespace gyre::store {

namespace {

Error damaged(const std::string& source, std::string_view why) {
  return {ErrorCode::kProtocol, fmt::format("cannot read the listing of {}: {}", source, why)};
}

bool is_true(const pugi::xml_node& node) { return std::strcmp(node.child_value(), "true") == 0; }

bool is_folder(const pugi::xml_node& blob) {
  const pugi::xml_node properties = blob.child("Properties");
  if (std::strcmp(properties.child_value("ResourceType"), "directory") == 0) return true;
  return is_true(blob.child("Metadata").child("hdi_isfolder")) || is_true(blob.child("Metadata").child("Hdi_isfolder"));
}

Object parse_blob(const pugi::xml_node& blob, const std::string& source) {
  const pugi::xml_node properties = blob.child("Properties");
  Object object;
  object.name = blob.child_value("Name");
  // Names with characters that XML cannot hold.
  if (std::strcmp(blob.child("Name").attribute("Encoded").value(), "true") == 0) object.name = decode(object.name);
  const std::string_view length = properties.child_value("Content-Length");
  const auto [end, failure] = std::from_chars(length.data(), length.data() + length.size(), object.size_bytes);
  if (failure != std::errc{} || end != length.data() + length.size() || length.empty()) {
    throw damaged(source, fmt::format("the size of '{}' is '{}'", object.name, length));
  }
  object.version = properties.child_value("Etag");
  // The listing gives it without the quotes that the headers have.
  if (!object.version.empty() && object.version.front() != '"') object.version = '"' + object.version + '"';
  object.encoding = properties.child_value("Content-Encoding");
  if (const auto md5 = decode_base64(properties.child_value("Content-MD5")); md5 && md5->size() == 16) {
    object.md5.emplace();
    std::ranges::copy(*md5, object.md5->begin());
  }
  return object;
}

}  // namespace

AzurePage parse_azure_page(std::string_view text, const std::string& source) {
  pugi::xml_document document;
  const auto parsed = document.load_buffer(text.data(), text.size());
  if (!parsed) throw damaged(source, fmt::format("it is no XML ({} at byte {})", parsed.description(), parsed.offset));
  const pugi::xml_node root = document.child("EnumerationResults");
  const pugi::xml_node blobs = root.child("Blobs");
  if (!root || !blobs) throw damaged(source, "it is not the answer of a blob service");
  AzurePage page;
  for (const pugi::xml_node& blob : blobs.children("Blob")) {
    if (!is_folder(blob)) page.objects.push_back(parse_blob(blob, source));
  }
  page.next_marker = root.child_value("NextMarker");
  return page;
}

std::vector<std::string> uncommitted_blocks(std::string_view text, const std::string& source) {
  pugi::xml_document document;
  if (!document.load_buffer(text.data(), text.size()) || !document.child("BlockList"))
    throw Error(ErrorCode::kProtocol, fmt::format("cannot read the list of blocks of {}", source));
  std::vector<std::string> names;
  for (const pugi::xml_node& block : document.child("BlockList").child("UncommittedBlocks").children("Block"))
    names.emplace_back(block.child_value("Name"));
  return names;
}

}  // namespace gyre::store
