#pragma once

#include <string>
#include <vector>

#include "gyre/data/readable_file.h"
#include "gyre/store/sources/source.h"

namespace gyre::store {

/// A listing of objects, "a/b.bin", read as folders. Immutable: thread-safe.
class ListedTree {
 public:
  explicit ListedTree(std::vector<Object> objects);

  /// `path`: "a", or "" for the root, without a '/' at the end.
  data::FileKind kind(const std::string& path) const;
  /// Empty where there is no such folder.
  std::vector<data::FolderEntry> list(const std::string& path) const;
  /// Null where there is none. It stays where it is.
  const Object* find(const std::string& path) const;

 private:
  std::vector<Object> objects_;  ///< By name.
};

}  // namespace gyre::store
