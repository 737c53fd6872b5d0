#include "gyre/data/image_folder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "gyre/base/error.h"
#include "gyre/data/split_names.h"

namespace gyre::data {
namespace {

std::string path_below(const std::string& root, std::string_view name) {
  return root.empty() ? std::string(name) : fmt::format("{}/{}", root, name);
}

/// Of one file per sample. The names, and what else it refers to, must outlive it.
class ImageFileReader : public SampleReader {
 public:
  /// `labels`: of each sample, or empty.
  ImageFileReader(std::string root, const internal::NameList& names, std::span<const std::uint32_t> labels,
                  const FileOpener& open, internal::FileVersions& versions, std::shared_ptr<MemoryBudget> budget)
      : root_(std::move(root)),
        names_(names),
        labels_(labels),
        open_(open),
        versions_(versions),
        stored_(std::move(budget)) {}

  Example read_sample(std::uint64_t index, StageTimes& times) override {
    StageClock clock(times);
    index_ = index;
    const auto file = open_(path());
    versions_.check(static_cast<std::size_t>(index), *file);
    const auto bytes = stored_.take(static_cast<std::size_t>(file->size_bytes()));
    file->read_at(0, bytes);
    Example sample;
    sample.add("image", Feature::of_bytes(bytes));
    if (!labels_.empty()) sample.add("label", Feature::of_int(labels_[static_cast<std::size_t>(index)]));
    clock.finish(Stage::kSource);
    return sample;
  }

  std::string position() const override { return path(); }
  std::size_t scratch_bytes() const override { return stored_.capacity_bytes(); }

 private:
  std::string path() const { return path_below(root_, names_.at(index_)); }

  std::string root_;
  const internal::NameList& names_;
  std::span<const std::uint32_t> labels_;
  const FileOpener& open_;
  internal::FileVersions& versions_;
  ScratchBuffer stored_;
  std::uint64_t index_ = 0;
};

/// Of one file per sample.
void announce(std::span<const std::uint64_t> samples, const std::string& root, const internal::NameList& names,
              const FileOpener& open) {
  for (const std::uint64_t sample : samples) {
    const auto file = open(path_below(root, names.at(sample)));
    const FileRange whole{.size_bytes = file->size_bytes()};
    file->will_read({&whole, 1});
  }
}

}  // namespace

ImageFolder::ImageFolder(std::string root, FileOpener open, std::vector<std::string> classes)
    : root_(std::move(root)), open_(std::move(open)), classes_(std::move(classes)) {
  const Folders& folders = open_.folders();
  const FileKind kind = folders.kind(root_);
  if (kind != FileKind::kFolder) {
    throw Error(ErrorCode::kNotFound,
                fmt::format("the folder {} {}", root_, kind == FileKind::kMissing ? "does not exist" : "is a file"));
  }
  const bool known = !classes_.empty();
  const FolderEntries entries = entries_of(folders, root_, left_out_);
  left_out_.unclassed_images = entries.images.size();
  left_out_.other_files = entries.others.size();
  if (!entries.others.empty()) left_out_.first_other = entries.others.front();
  refuse_sets(entries.folders);
  ClassOfFolder owners = {{folders.real_name(root_), ""}};
  std::vector<std::string> empty;
  for (const std::string& name : entries.folders) {
    const auto found = std::ranges::find(classes_, name);
    const auto label = static_cast<std::uint32_t>(found - classes_.begin());
    const bool held = add_class(name, label, owners);
    if (!held) empty.push_back(name);
    if (found == classes_.end() && (held || !known)) classes_.push_back(name);
  }
  check_classes(empty, known);
  versions_ = std::make_shared<internal::FileVersions>(static_cast<std::size_t>(names_.size()));
}

void ImageFolder::refuse_sets(const std::vector<std::string>& folders) const {
  const auto is_set = [&](const std::string& name) {
    return split_of(name) && std::ranges::find(classes_, name) == classes_.end();
  };
  if (folders.empty() || !std::ranges::all_of(folders, is_set)) return;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("{} has folders for sets ({}), not for classes; give one of these folders instead, as {}/{}",
                          root_, fmt::join(folders, ", "), root_, folders.front()));
}

void ImageFolder::check_classes(const std::vector<std::string>& empty, bool known) const {
  if (!known && classes_.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} has no folders; an image folder has one for each class, with its images", root_));
  }
  if ((!known && !empty.empty()) || labels_.empty()) {
    std::vector<std::string> paths;
    for (const std::string& name : empty) paths.push_back(root_ + "/" + name);
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} {} no .jpg, .jpeg or .png file; every folder there is a class",
                            paths.empty() ? root_ : fmt::format("{}", fmt::join(paths, ", ")),
                            paths.size() > 1 ? "hold" : "holds"));
  }
}

bool ImageFolder::add_class(const std::string& name, std::uint32_t label, ClassOfFolder& owners) {
  const auto own = [&](const std::string& folder) {
    const std::string lies_at = open_.folders().real_name(folder);
    const std::string& owner = owners.try_emplace(lies_at, name).first->second;
    if (owner == name) return;
    const std::string others = owner.empty() ? "the whole data set" : fmt::format("the class {}", owner);
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("{} leads to {}, a folder of {}, so its images would belong to the class {} as well; remove "
                    "the link that makes them one",
                    folder, lies_at, others, name));
  };
  const std::vector<std::string> images = images_below(open_.folders(), root_ + "/" + name, left_out_, own);
  for (const std::string& image : images) {
    names_.add(fmt::format("{}/{}", name, image));
    labels_.push_back(label);
  }
  return !images.empty();
}

void ImageFolder::will_read(std::span<const std::uint64_t> samples) const { announce(samples, root_, names_, open_); }

std::unique_ptr<SampleReader> ImageFolder::make_reader(std::shared_ptr<MemoryBudget> budget) const {
  return std::make_unique<ImageFileReader>(root_, names_, labels_, open_, *versions_, std::move(budget));
}

ImageFiles::ImageFiles(const std::vector<std::string>& places, FileOpener open) : open_(std::move(open)) {
  for (const std::string& place : places) {
    const FileKind kind = open_.folders().kind(place);
    if (kind == FileKind::kMissing) {
      throw Error(ErrorCode::kNotFound, fmt::format("there is no image {}: it does not exist", place));
    }
    if (kind != FileKind::kFolder) {
      if (image_name(place) == ImageName::kNotRead) refuse_image(place);
      names_.add(place);
      continue;
    }
    if (places.size() == 1) root_ = place;
    for (const std::string& image : images_below(open_.folders(), place, left_out_)) {
      names_.add(root_.empty() ? fmt::format("{}/{}", place, image) : image);
    }
  }
  if (names_.size() == 0) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} holds no .jpg, .jpeg or .png file", fmt::join(places, ", ")));
  }
  versions_ = std::make_shared<internal::FileVersions>(static_cast<std::size_t>(names_.size()));
}

void ImageFiles::will_read(std::span<const std::uint64_t> samples) const { announce(samples, root_, names_, open_); }

std::unique_ptr<SampleReader> ImageFiles::make_reader(std::shared_ptr<MemoryBudget> budget) const {
  return std::make_unique<ImageFileReader>(root_, names_, std::span<const std::uint32_t>(), open_, *versions_,
                                           std::move(budget));
}

}  // namespace gyre::data
