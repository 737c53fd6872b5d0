#include "gyre/store/staging/leftovers.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <unordered_set>

#include "gyre/base/bytes.h"
#include "gyre/base/checksum.h"
#include "gyre/base/error.h"

namespace gyre::store {

namespace {

namespace fs = std::filesystem;

/// The names of a set's files. Where two have one hash, a file too many stays: none is removed.
class Names {
 public:
  explicit Names(const Manifest& manifest) {
    hashes_.reserve(manifest.entries.size());
    for (const ManifestEntry& entry : manifest.entries) hashes_.insert(hash_of(entry.target));
  }
  bool has(const std::string& name) const { return hashes_.contains(hash_of(name)); }

 private:
  static std::uint64_t hash_of(const std::string& name) { return xxh3_64(as_bytes(name)); }

  std::unordered_set<std::uint64_t> hashes_;
};

/// The log may lie in a folder that others can write to.
bool is_below(const std::string& name) {
  try {
    check_object_name(name, "the log");
    return true;
  } catch (const Error&) {
    return false;
  }
}

void remove_empty_folders(fs::path folder, const fs::path& top) {
  std::error_code failure;
  for (; folder != top && folder.has_relative_path(); folder = folder.parent_path()) {
    if (!fs::remove(folder, failure)) return;  // It is not empty.
  }
}

std::vector<std::string> files_beside(const Names& set, const fs::path& top) {
  std::vector<std::string> others;
  std::error_code failure;
  auto at = fs::recursive_directory_iterator(top, fs::directory_options::skip_permission_denied, failure);
  for (; !failure && at != fs::recursive_directory_iterator() && others.size() < kMostOthers; at.increment(failure)) {
    if (at->path().filename().string().starts_with('.')) {
      at.disable_recursion_pending();
      continue;
    }
    std::error_code unknown;
    if (at->is_directory(unknown) && !at->is_symlink(unknown)) continue;
    std::string name = at->path().lexically_relative(top).string();
    if (!set.has(name)) others.push_back(std::move(name));
  }
  std::ranges::sort(others);
  return others;
}

}  // namespace

std::uint64_t set_of(const Manifest& manifest, const std::string& selection) {
  std::vector<std::string> texts = manifest.sources;
  std::ranges::sort(texts);
  texts.push_back(selection);
  ByteWriter writer;
  for (const std::string& text : texts) {
    writer.u32(static_cast<std::uint32_t>(text.size()));
    writer.text(text);
  }
  const PartOf part = manifest.part.value_or(PartOf());
  writer.u32(static_cast<std::uint32_t>(part.node));
  writer.u32(static_cast<std::uint32_t>(part.nodes));
  writer.text(part.rule);
  return xxh3_64(writer.result());
}

FoundLeftovers settle_leftovers(const Manifest& manifest, std::uint64_t set, Leftovers rule, const StageFolder& folder,
                                const StageLog& log) {
  const Names names(manifest);
  FoundLeftovers found;
  for (const auto& [name, brought] : log.brought()) {
    if (rule == Leftovers::kStay || (rule == Leftovers::kRemoveOfTheSet && brought.set != set)) continue;
    // A file that was changed since is the person's.
    if (names.has(name) || !is_below(name) || !folder.holds(brought.done, name)) continue;
    std::error_code failure;
    if (!fs::remove(folder.target(name), failure)) continue;  // It is one of the others, then.
    remove_empty_folders(folder.target(name).parent_path(), folder.path());
    found.removed.push_back(name);
  }
  std::ranges::sort(found.removed);
  found.others = files_beside(names, folder.path());
  return found;
}

}  // namespace gyre::store
