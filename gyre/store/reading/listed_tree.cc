#include "gyre/store/reading/listed_tree.h"

#include <algorithm>
#include <utility>

namespace gyre::store {

namespace {

std::string prefix_of(const std::string& path) { return path.empty() ? "" : path + "/"; }

}  // namespace

ListedTree::ListedTree(std::vector<Object> objects) : objects_(std::move(objects)) {
  std::ranges::sort(objects_, {}, &Object::name);
}

const Object* ListedTree::find(const std::string& path) const {
  const auto found = std::ranges::lower_bound(objects_, path, {}, &Object::name);
  return found != objects_.end() && found->name == path ? &*found : nullptr;
}

data::FileKind ListedTree::kind(const std::string& path) const {
  if (find(path) != nullptr) return data::FileKind::kFile;
  const std::string prefix = prefix_of(path);
  const auto below = std::ranges::lower_bound(objects_, prefix, {}, &Object::name);
  const bool any = below != objects_.end() && below->name.starts_with(prefix);
  return any ? data::FileKind::kFolder : data::FileKind::kMissing;
}

std::vector<data::FolderEntry> ListedTree::list(const std::string& path) const {
  const std::string prefix = prefix_of(path);
  std::vector<data::FolderEntry> entries;
  auto object = std::ranges::lower_bound(objects_, prefix, {}, &Object::name);
  while (object != objects_.end() && object->name.starts_with(prefix)) {
    const std::size_t slash = object->name.find('/', prefix.size());
    if (slash == std::string::npos) {
      entries.push_back({.name = object->name.substr(prefix.size()), .kind = data::FileKind::kFile});
      ++object;
      continue;
    }
    entries.push_back(
        {.name = object->name.substr(prefix.size(), slash - prefix.size()), .kind = data::FileKind::kFolder});
    // Past all that lies in it: '0' follows '/'.
    const std::string behind = object->name.substr(0, slash) + "0";
    object = std::lower_bound(object, objects_.end(), behind,
                              [](const Object& one, const std::string& name) { return one.name < name; });
  }
  return entries;
}

}  // namespace gyre::store
