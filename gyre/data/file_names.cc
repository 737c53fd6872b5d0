#include "gyre/data/file_names.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "gyre/base/error.h"
#include "gyre/data/open_samples.h"

namespace gyre::data {
namespace {

bool has_wildcard(std::string_view text) { return text.find_first_of("*?[") != std::string_view::npos; }

using Found = std::vector<std::pair<std::string, FileKind>>;

/// What matches the parts of a pattern from `rest` on, in `folder`, which ends with '/' or is empty (the working
/// directory).
void add_matches(const Folders& folders, const std::string& folder, std::string_view rest, Found& found) {
  const std::size_t slash = rest.find('/');
  const std::string part(rest.substr(0, slash));
  rest = rest.substr(std::min(rest.find_first_not_of('/', std::min(slash, rest.size())), rest.size()));
  const auto add = [&](const std::string& name, FileKind kind) {
    if (rest.empty()) {
      found.emplace_back(folder + name, kind);
    } else if (kind == FileKind::kFolder) {
      add_matches(folders, folder + name + "/", rest, found);
    }
  };
  if (!has_wildcard(part)) {
    const FileKind kind = folders.kind(folder + part);
    if (kind != FileKind::kMissing) add(part, kind);
    return;
  }
  for (const FolderEntry& entry : folders.list(folder.empty() ? "." : folder)) {
    if (::fnmatch(part.c_str(), entry.name.c_str(), FNM_NOESCAPE | FNM_PERIOD) == 0) add(entry.name, entry.kind);
  }
}

}  // namespace

std::string folder_before_wildcards(const std::string& pattern) {
  const std::size_t wildcard = pattern.find_first_of("*?[");
  if (wildcard == std::string::npos) return pattern;
  const std::size_t slash = pattern.rfind('/', wildcard);
  return slash == std::string::npos ? "" : pattern.substr(0, slash);
}

std::vector<std::string> find_files(const std::string& name, const FileOpener& open) {
  const Folders& folders = open.folders();
  const FileKind kind = folders.kind(name);
  if (kind == FileKind::kFolder) return files_of_folder(name, open);
  if (kind != FileKind::kMissing) return {name};
  Found found;
  // The root, or the scheme of a URL with its server or bucket, has no wildcards.
  const std::string start = folder_before_wildcards(name);
  if (has_wildcard(name) && (start.empty() || folders.kind(start) == FileKind::kFolder)) {
    const bool from_root = start.empty() && name.starts_with('/');
    const std::string folder = start.empty() ? (from_root ? "/" : "") : start + "/";
    add_matches(folders, folder, std::string_view(name).substr(folder.size()), found);
  }
  if (found.empty()) throw Error(ErrorCode::kInvalidArgument, fmt::format("no file is called '{}'", name));
  std::vector<std::string> files;
  for (auto& [path, what] : found) {
    if (what != FileKind::kFolder) files.push_back(std::move(path));
  }
  if (files.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("'{}' matches only folders; give one folder by its own name", name));
  }
  std::ranges::sort(files);
  return files;
}

}  // namespace gyre::data
