#include "gyre/data/data_sets.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <filesystem>
#include <map>
#include <string_view>
#include <utility>

#include "gyre/base/error.h"
#include "gyre/data/image_listing.h"
#include "gyre/data/split_names.h"

namespace gyre::data {
namespace {

namespace fs = std::filesystem;

/// Of files that say something about a set, and hold none of its samples.
constexpr std::array<std::string_view, 8> kText = {".csv", ".tsv", ".txt", ".json", ".yaml", ".yml", ".xml", ".md"};

/// All sets of a folder, by Split; folders before files.
using AllSets = std::array<std::vector<SetPlace>, 3>;

std::vector<SetPlace>& of(AllSets& sets, Split split) { return sets.at(static_cast<std::size_t>(split)); }

bool is_text(const std::string& name) {
  std::string extension = fs::path(name).extension().string();
  for (char& c : extension) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return std::ranges::find(kText, extension) != kText.end();
}

AllSets all_sets(const std::string& folder, const FolderEntries& entries) {
  AllSets sets;
  const auto path_of = [&](const std::string& name) { return (fs::path(folder) / name).string(); };
  for (const std::string& name : entries.folders) {
    if (const auto split = split_of(name)) of(sets, *split).push_back({name, {path_of(name)}, true});
  }
  std::map<std::string, std::vector<std::string>> groups;
  for (const std::string& name : entries.others) {
    const std::size_t hyphen = name.find('-');
    if (hyphen != std::string::npos && !is_text(name)) groups[name.substr(0, hyphen)].push_back(path_of(name));
  }
  for (auto& [name, files] : groups) {
    if (const auto split = split_of(name)) of(sets, *split).push_back({name + "-*", std::move(files), false});
  }
  return sets;
}

std::vector<std::string> class_folders(const Folders& folders, const std::string& folder,
                                       const FolderEntries& entries) {
  std::vector<std::string> classes;
  for (const std::string& name : entries.folders) {
    if (!split_of(name) && has_image(folders, (fs::path(folder) / name).string())) classes.push_back(name);
  }
  return classes;
}

/// Images, and no folders that would be classes.
bool holds_only_images(const Folders& folders, const SetPlace& place) {
  if (!place.is_folder) return false;
  LeftOut ignored;
  const FolderEntries entries = entries_of(folders, place.paths.front(), ignored);
  return entries.folders.empty() && !entries.images.empty();
}

/// The first one, unless the second is as good.
SetPlace taken_from(const std::vector<SetPlace>& places, std::string_view meaning, const std::string& folder) {
  if (places.size() > 1 && places[0].is_folder == places[1].is_folder) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("{} has two {} sets, {} and {}; move one of them away", folder,
                                                         meaning, places[0].name, places[1].name));
  }
  return places.front();
}

/// The class folders, where there is no training set. A "train" that is one of them leaves `sets`.
std::vector<std::string> classes_instead_of_sets(const Folders& folders, const std::string& folder,
                                                 const FolderEntries& entries, AllSets& sets) {
  std::vector<SetPlace>& training = of(sets, Split::kTraining);
  if (training.empty()) return class_folders(folders, folder, entries);
  const bool has_others = !of(sets, Split::kValidation).empty() || !of(sets, Split::kTest).empty();
  if (has_others || training.size() > 1 || !holds_only_images(folders, training.front())) return {};
  std::vector<std::string> classes = class_folders(folders, folder, entries);
  if (classes.size() < 2) return {};
  classes.push_back(training.front().name);
  std::ranges::sort(classes);
  training.clear();
  return classes;
}

/// They would become classes.
void refuse_sets_among_classes(AllSets& sets, const std::vector<std::string>& classes, const std::string& folder) {
  for (const Split split : {Split::kValidation, Split::kTest}) {
    for (const SetPlace& place : of(sets, split)) {
      if (!place.is_folder) continue;
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{} has a folder {} beside class folders ({}{}), and it is not clear whether it is a set "
                              "or a class; move the class folders into a folder {}/train",
                              folder, place.name, classes.front(), classes.size() > 1 ? ", …" : "", folder));
    }
  }
}

std::vector<std::string> names_of_others(const AllSets& sets, const DataSets& used) {
  std::vector<std::string> names;
  for (const auto& places : sets) {
    for (const SetPlace& place : places) {
      const auto is_used = [&](const std::optional<SetPlace>& set) { return set && set->name == place.name; };
      if (!is_used(used.training) && !is_used(used.validation)) names.push_back(place.name);
    }
  }
  return names;
}

}  // namespace

DataSets find_data_sets(const Folders& folders, const std::string& folder, bool hold_out) {
  LeftOut ignored;
  const FolderEntries entries = entries_of(folders, folder, ignored);
  AllSets sets = all_sets(folder, entries);
  DataSets used{.classes = classes_instead_of_sets(folders, folder, entries, sets)};
  if (!of(sets, Split::kTraining).empty()) {
    used.training = taken_from(of(sets, Split::kTraining), "training", folder);
  } else if (hold_out && !used.classes.empty()) {
    refuse_sets_among_classes(sets, used.classes, folder);
    used.training = SetPlace{.name = "the class folders", .paths = {folder}, .is_folder = true};
  }
  if (!of(sets, Split::kValidation).empty()) {
    used.validation = taken_from(of(sets, Split::kValidation), "validation", folder);
  } else if (!hold_out && !of(sets, Split::kTest).empty()) {
    used.validation = taken_from(of(sets, Split::kTest), "test", folder);
    used.validation_is_test_set = true;
  }
  used.left_aside = names_of_others(sets, used);
  return used;
}

}  // namespace gyre::data
