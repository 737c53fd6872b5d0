#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gyre/store/sources/source.h"
#include "gyre/store/staging/entry_table.h"

namespace gyre::store {

/// Which objects are decompressed on their way to the disk.
enum class Inflation {
  kNone,        ///< All stay as they are stored.
  kByEncoding,  ///< Those with a Content-Encoding of gzip or deflate.
  kBySuffix,    ///< Those, and those whose names end with .gz, .gzip or .zz.
};

/// Which part of a data set one of several nodes has.
struct PartOf {
  int node = 0;
  int nodes = 1;
  std::string rule{};            ///< "size", "suffix" or "range".
  std::string whole_manifest{};  ///< The digest of the manifest that was divided: alike on all nodes.
};

/// The objects of one or several sources, as they were listed: what is staged. Sorted by target.
struct Manifest {
  std::vector<std::string> sources{};
  EntryTable entries{};
  std::optional<PartOf> part{};  ///< Nothing for the whole.

  std::uint64_t stored_bytes() const;
  /// Of its sources and entries, 64 digits: two manifests with one digest have the same.
  std::string digest() const;
};

/// A source's objects, and the folder (below the one that is staged to) that they go to; empty for none.
struct Listing {
  std::string source;
  std::string folder{};
  std::vector<Object> objects;
};

/// What `gyre stage` keeps beside the files that it has staged. It is no part of a data set.
inline constexpr const char* kOwnFolder = ".gyre-stage";

/// Whether a name ends with .gz, .gzip or .zz.
bool has_compression_suffix(const std::string& name);

/// Without what lies in a folder named kOwnFolder. Error(kInvalidArgument): see check_object_name(); two objects that
/// become one file, or a file that stands where another's folder must; a Content-Encoding that cannot be taken off.
Manifest make_manifest(std::vector<Listing> listings, Inflation inflation);

}  // namespace gyre::store
