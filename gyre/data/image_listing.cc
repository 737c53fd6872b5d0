#include "gyre/data/image_listing.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <utility>

#include "gyre/base/error.h"

namespace gyre::data {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 5> kRead = {".jpg", ".jpeg", ".jpe", ".jfif", ".png"};

struct OtherFormat {
  std::string_view extension;
  std::string_view name;
};
/// Images that other loaders read.
constexpr std::array kNotRead = {
    OtherFormat{".webp", "a WebP image"},   OtherFormat{".tif", "a TIFF image"},
    OtherFormat{".tiff", "a TIFF image"},   OtherFormat{".bmp", "a BMP image"},
    OtherFormat{".gif", "a GIF image"},     OtherFormat{".ppm", "a PPM image"},
    OtherFormat{".pgm", "a PGM image"},     OtherFormat{".jp2", "a JPEG 2000 image"},
    OtherFormat{".avif", "an AVIF image"},  OtherFormat{".heic", "a HEIC image"},
    OtherFormat{".jxl", "a JPEG XL image"},
};
/// Folders that archive programs, file servers and interpreters leave.
constexpr std::array<std::string_view, 3> kHiddenFolders = {"__MACOSX", "@eaDir", "__pycache__"};
constexpr int kMostDepth = 16;

std::string extension_of(std::string_view name) {
  std::string extension = fs::path(name).extension().string();
  for (char& c : extension) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return extension;
}

std::string counted(std::uint64_t count, std::string_view one, std::string_view many) {
  return fmt::format("{} {}", count, count == 1 ? one : many);
}

/// Below `root`/`below`; links to a folder above would have no end, hence `depth`.
void find_images(const Folders& folders, const std::string& root, const std::string& below, int depth,
                 std::vector<std::string>& images, LeftOut& left_out,
                 const std::function<void(const std::string& path)>& visit) {
  const std::string folder = below.empty() ? root : root + "/" + below;
  if (depth > kMostDepth) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} is more than {} folders deep; does a link lead back?", folder, kMostDepth));
  }
  if (visit) visit(folder);
  const std::string prefix = below.empty() ? "" : below + "/";
  FolderEntries entries = entries_of(folders, folder, left_out);
  // Files and folders together in the order of their names, which numbers the samples.
  std::vector<std::pair<std::string, bool>> names;
  for (std::string& name : entries.folders) names.emplace_back(std::move(name), true);
  for (std::string& name : entries.images) names.emplace_back(std::move(name), false);
  std::ranges::sort(names);
  for (const auto& [name, is_folder] : names) {
    if (is_folder) {
      find_images(folders, root, prefix + name, depth + 1, images, left_out, visit);
    } else if (image_name(name) == ImageName::kRead) {
      images.push_back(prefix + name);
    } else {
      refuse_image(fmt::format("{}/{}", folder, name));
    }
  }
  left_out.other_files += entries.others.size();
  if (left_out.first_other.empty() && !entries.others.empty()) left_out.first_other = entries.others.front();
}

bool has_image(const Folders& folders, const std::string& folder, int depth) {
  LeftOut ignored;
  const FolderEntries entries = entries_of(folders, folder, ignored);
  if (!entries.images.empty()) return true;
  if (depth == kMostDepth) return false;
  return std::ranges::any_of(entries.folders, [&](const std::string& name) {
    return has_image(folders, fmt::format("{}/{}", folder, name), depth + 1);
  });
}

}  // namespace

std::string LeftOut::describe() const {
  std::vector<std::string> parts;
  if (hidden_files > 0) parts.push_back(counted(hidden_files, "hidden file", "hidden files"));
  if (hidden_folders > 0) parts.push_back(counted(hidden_folders, "hidden folder", "hidden folders"));
  if (unclassed_images > 0) {
    parts.push_back(counted(unclassed_images, "image", "images") + " beside the class folders");
  }
  if (other_files == 1) parts.push_back(fmt::format("1 file that is not an image ({})", first_other));
  if (other_files > 1) parts.push_back(fmt::format("{} files that are not images ({}, …)", other_files, first_other));
  return fmt::format("{}", fmt::join(parts, ", "));
}

ImageName image_name(std::string_view name) {
  const std::string extension = extension_of(name);
  if (std::ranges::find(kRead, extension) != kRead.end()) return ImageName::kRead;
  const bool known = std::ranges::find(kNotRead, extension, &OtherFormat::extension) != kNotRead.end();
  return known ? ImageName::kNotRead : ImageName::kNoImage;
}

bool is_hidden(std::string_view name) {
  return name.starts_with('.') || std::ranges::find(kHiddenFolders, name) != kHiddenFolders.end();
}

FolderEntries entries_of(const Folders& folders, const std::string& folder, LeftOut& left_out) {
  FolderEntries found;
  for (FolderEntry& entry : folders.list(folder)) {
    if (is_hidden(entry.name)) {
      ++(entry.kind == FileKind::kFolder ? left_out.hidden_folders : left_out.hidden_files);
      continue;
    }
    if (entry.kind == FileKind::kMissing) {
      throw Error(ErrorCode::kNotFound,
                  fmt::format("{}/{} is a link to {}, which does not exist; remove the link, or restore the file",
                              folder, entry.name, entry.leads_to));
    }
    const bool image = entry.kind == FileKind::kFile && image_name(entry.name) != ImageName::kNoImage;
    auto& names = entry.kind == FileKind::kFolder ? found.folders : image ? found.images : found.others;
    names.push_back(std::move(entry.name));
  }
  for (auto* names : {&found.folders, &found.images, &found.others}) std::ranges::sort(*names);
  return found;
}

std::vector<std::string> images_below(const Folders& folders, const std::string& folder, LeftOut& left_out,
                                      const std::function<void(const std::string& path)>& visit) {
  std::vector<std::string> images;
  find_images(folders, folder, "", 0, images, left_out, visit);
  return images;
}

bool has_image(const Folders& folders, const std::string& folder) { return has_image(folders, folder, 0); }

void refuse_image(const std::string& path) {
  const auto* const kind = std::ranges::find(kNotRead, extension_of(path), &OtherFormat::extension);
  throw Error(
      ErrorCode::kUnsupported,
      fmt::format("{} is {}, which is not read; convert such files to JPEG or PNG, or move them out of the data "
                  "set",
                  path, kind == kNotRead.end() ? "an image of another kind" : kind->name));
}

}  // namespace gyre::data
