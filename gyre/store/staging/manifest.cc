#include "gyre/store/staging/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "gyre/base/bytes.h"
#include "gyre/base/checksum.h"
#include "gyre/base/error.h"
#include "gyre/store/sources/text.h"

namespace gyre::store {

namespace {

using data::Compression;

constexpr std::array<std::string_view, 3> kSuffixes = {".gz", ".gzip", ".zz"};

std::string_view suffix_of(const std::string& name) {
  const auto found = std::ranges::find_if(kSuffixes, [&](std::string_view suffix) { return name.ends_with(suffix); });
  return found == kSuffixes.end() ? std::string_view() : *found;
}

Compression compression_of(const Object& object, Inflation inflation, const std::string& source) {
  if (inflation == Inflation::kNone) return Compression::kNone;
  if (object.encoding == "gzip" || object.encoding == "x-gzip") return Compression::kGzip;
  if (object.encoding == "deflate") return Compression::kZlib;
  if (!object.encoding.empty() && object.encoding != "identity") {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("cannot decompress {} of {}: its Content-Encoding is '{}'; gzip and deflate are known",
                            object.name, source, object.encoding));
  }
  if (inflation != Inflation::kBySuffix) return Compression::kNone;
  const std::string_view suffix = suffix_of(object.name);
  if (suffix.empty()) return Compression::kNone;
  return suffix == ".zz" ? Compression::kZlib : Compression::kGzip;
}

std::string target_of(const ManifestEntry& entry, const std::string& folder) {
  std::string name = entry.object.name;
  if (entry.compression != Compression::kNone) name.erase(name.size() - suffix_of(name).size());
  return folder.empty() ? name : folder + "/" + name;
}

std::string describe(const Manifest& manifest, const ManifestEntry& entry) {
  return fmt::format("{} of {}", entry.object.name, manifest.sources[entry.source]);
}

/// The entries are sorted, so that what would stand in one place stands side by side, but for names between "a" and
/// "a/": those that go on with a character below '/'.
void check_targets(const Manifest& manifest, const std::vector<ManifestEntry>& entries) {
  for (std::size_t i = 1; i < entries.size(); ++i) {
    if (entries[i].target == entries[i - 1].target) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{} and {} would both become the file {}; stage them to two folders",
                              describe(manifest, entries[i - 1]), describe(manifest, entries[i]), entries[i].target));
    }
  }
  for (const ManifestEntry& entry : entries) {
    const auto below = std::ranges::lower_bound(entries, entry.target + "/", {}, &ManifestEntry::target);
    if (below != entries.end() && below->target.starts_with(entry.target + "/")) {
      throw Error(ErrorCode::kInvalidArgument, fmt::format("{} would be a file where {} needs a folder",
                                                           describe(manifest, entry), describe(manifest, *below)));
    }
  }
}

}  // namespace

std::uint64_t Manifest::stored_bytes() const {
  std::uint64_t total = 0;
  for (const ManifestEntry& entry : entries) total += entry.object.size_bytes;
  return total;
}

std::string Manifest::digest() const {
  ByteWriter writer;
  const auto text = [&](const std::string& value) {
    writer.u32(static_cast<std::uint32_t>(value.size()));
    writer.text(value);
  };
  for (const std::string& source : sources) text(source);
  for (const ManifestEntry& entry : entries) {
    writer.u64(entry.source);
    writer.u64(entry.object.size_bytes);
    writer.u8(static_cast<std::uint8_t>(entry.compression));
    const std::string md5 = entry.object.md5 ? hex_of(*entry.object.md5) : "";
    for (const std::string& value : {entry.object.name, entry.object.version, entry.object.encoding, md5, entry.target})
      text(value);
  }
  return hex(sha256(writer.result()));
}

bool has_compression_suffix(const std::string& name) { return !suffix_of(name).empty(); }

Manifest make_manifest(std::vector<Listing> listings, Inflation inflation) {
  Manifest manifest;
  std::vector<ManifestEntry> entries;
  for (Listing& listing : listings) {
    for (Object& object : listing.objects) {
      check_object_name(object.name, listing.source);
      if (("/" + object.name).find(fmt::format("/{}/", kOwnFolder)) != std::string::npos) continue;
      ManifestEntry entry{.source = manifest.sources.size(), .object = std::move(object)};
      entry.compression = compression_of(entry.object, inflation, listing.source);
      entry.target = target_of(entry, listing.folder);
      check_object_name(entry.target, listing.source);
      entries.push_back(std::move(entry));
    }
    manifest.sources.push_back(std::move(listing.source));
  }
  std::ranges::sort(entries, {}, &ManifestEntry::target);
  check_targets(manifest, entries);
  for (const ManifestEntry& entry : entries) manifest.entries.push_back(entry);
  manifest.entries.shrink_to_fit();
  return manifest;
}

}  // namespace gyre::store
