#include "gyre/data/image_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <utility>

#include "gyre/base/error.h"

namespace gyre::data {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 3> kRead = {".jpg", ".jpeg", ".png"};
/// Images that other loaders read, and this one does not: to leave them out silently would change the data set.
constexpr std::array<std::string_view, 11> kNotRead = {".webp", ".bmp", ".gif",  ".tif",  ".tiff", ".ppm",
                                                       ".pgm",  ".jp2", ".avif", ".heic", ".jxl"};

std::string extension_of(const fs::path& path) {
  std::string extension = path.extension().string();
  for (char& c : extension) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return extension;
}

struct Entry {
  fs::path path;
  bool is_folder;  ///< As the folder's listing says, without a look at each file.
};

/// What stands in `folder`, sorted.
std::vector<Entry> entries_of(const fs::path& folder) {
  std::error_code error;
  std::vector<Entry> entries;
  for (fs::directory_iterator entry(folder, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    std::error_code ignored;  // Of a link that leads nowhere, which is not a folder.
    entries.push_back({entry->path(), entry->is_directory(ignored)});
  }
  if (error) throw system_error(fmt::format("cannot read the folder {}", folder.string()), error.value());
  std::ranges::sort(entries, {}, &Entry::path);
  return entries;
}

/// Below `folder`, in the order of their names; links to a folder above would have no end, hence `depth`.
void find_images(const fs::path& folder, int depth, std::vector<fs::path>& images) {
  constexpr int kMostDepth = 16;
  if (depth > kMostDepth) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} is more than {} folders deep; does a link lead back?", folder.string(), kMostDepth));
  }
  for (Entry& entry : entries_of(folder)) {
    if (entry.is_folder) {
      find_images(entry.path, depth + 1, images);
      continue;
    }
    const std::string extension = extension_of(entry.path);
    if (std::ranges::find(kRead, extension) != kRead.end()) {
      images.push_back(std::move(entry.path));
    } else if (std::ranges::find(kNotRead, extension) != kNotRead.end()) {
      throw Error(ErrorCode::kUnsupported,
                  fmt::format("{} is an image of a kind that is not read; convert the {} files to JPEG or PNG, or move "
                              "them out of the data set",
                              entry.path.string(), extension));
    }
  }
}

}  // namespace

class ImageFolder::Reader : public SampleReader {
 public:
  Reader(const ImageFolder& set, std::shared_ptr<MemoryBudget> budget) : set_(set), stored_(std::move(budget)) {}

  Example read_sample(std::uint64_t index, StageTimes& times) override {
    StageClock clock(times);
    index_ = index;
    const auto file = set_.open_(path());
    const auto bytes = stored_.take(static_cast<std::size_t>(file->size_bytes()));
    file->read_at(0, bytes);
    Example sample;
    sample.add("image", Feature::of_bytes(bytes));
    sample.add("label", Feature::of_int(set_.labels_[static_cast<std::size_t>(index)]));
    clock.finish(Stage::kSource);
    return sample;
  }

  std::string position() const override { return path(); }
  std::size_t scratch_bytes() const override { return stored_.capacity_bytes(); }

 private:
  std::string path() const { return fmt::format("{}/{}", set_.root_, set_.name_of(index_)); }

  const ImageFolder& set_;
  ScratchBuffer stored_;
  std::uint64_t index_ = 0;
};

ImageFolder::ImageFolder(std::string root, FileOpener open) : root_(std::move(root)), open_(std::move(open)) {
  std::error_code ignored;
  if (!fs::is_directory(root_, ignored)) {
    throw Error(ErrorCode::kNotFound, fmt::format("the folder {} does not exist", root_));
  }
  for (const Entry& entry : entries_of(root_)) {
    if (entry.is_folder) add_class(entry.path.filename().string());
  }
  if (classes_.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} has no folders; an image folder has one for each class, with its images", root_));
  }
}

void ImageFolder::add_class(const std::string& name) {
  std::vector<fs::path> images;
  find_images(fs::path(root_) / name, 0, images);
  if (images.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}/{} holds no .jpg, .jpeg or .png file; every folder there is a class", root_, name));
  }
  for (const fs::path& image : images) {
    names_ += image.lexically_relative(root_).string();
    ends_.push_back(names_.size());
    labels_.push_back(static_cast<std::uint32_t>(classes_.size()));
  }
  classes_.push_back(name);
}

std::string_view ImageFolder::name_of(std::uint64_t sample) const {
  const auto index = static_cast<std::size_t>(sample);
  const auto begin = static_cast<std::size_t>(index == 0 ? 0 : ends_[index - 1]);
  return std::string_view(names_).substr(begin, static_cast<std::size_t>(ends_[index]) - begin);
}

std::unique_ptr<SampleReader> ImageFolder::make_reader(std::shared_ptr<MemoryBudget> budget) const {
  return std::make_unique<Reader>(*this, std::move(budget));
}

}  // namespace gyre::data
