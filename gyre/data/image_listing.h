#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "gyre/data/readable_file.h"

namespace gyre::data {

/// What counts as a class and what as a sample in a folder of images. It is decided here for all programs and for
/// Python:
///
/// * Hidden files and folders are left out: those whose names begin with a dot, and __MACOSX, @eaDir and __pycache__.
/// * Every other folder in the root is a class, with all samples below it, at any depth. A root whose folders are all
///   named as sets (train, test: split_names.h) holds no classes, which is an error.
/// * A sample is a file whose name ends as JPEG's and PNG's do (.jpg, .jpeg, .jpe, .jfif, .png), in any case.
/// * An image of another kind (.webp, .tif, …) is an error, because the set would be another one without it.
/// * Every other file is left out. Links count as what they lead to; one that leads nowhere is an error, and so is a
///   folder that belongs to two classes.
///
/// What is left out is counted.
struct LeftOut {
  std::uint64_t hidden_files = 0;
  std::uint64_t hidden_folders = 0;
  std::uint64_t other_files = 0;       ///< That are no images.
  std::uint64_t unclassed_images = 0;  ///< Beside the folders of the classes.
  std::string first_other{};           ///< The name of the first one.

  /// "1 hidden file, 2 files that are not images (labels.csv, …)"; empty where nothing was left out.
  std::string describe() const;
};

/// By a file's name alone.
enum class ImageName { kRead, kNotRead, kNoImage };
ImageName image_name(std::string_view name);

bool is_hidden(std::string_view name);

/// What stands in one folder and is not hidden, sorted by name.
struct FolderEntries {
  std::vector<std::string> folders;
  std::vector<std::string> images;  ///< Of all kinds.
  std::vector<std::string> others;
};

/// Counts what is hidden in `left_out`. Error(kNotFound, kIo) where the folder cannot be read, or a link leads nowhere.
FolderEntries entries_of(const Folders& folders, const std::string& folder, LeftOut& left_out);

/// The samples below `folder`, at any depth, as names below it, in the order of their names. Error(kUnsupported) for an
/// image of another kind, kInvalidArgument where the folders never end. `visit` is called with the path of `folder` and
/// of each folder below it, before anything in it is looked at.
std::vector<std::string> images_below(const Folders& folders, const std::string& folder, LeftOut& left_out,
                                      const std::function<void(const std::string& path)>& visit = {});

/// Whether there is an image of any kind below `folder`.
bool has_image(const Folders& folders, const std::string& folder);

/// Error(kUnsupported) that names the kind.
[[noreturn]] void refuse_image(const std::string& path);

}  // namespace gyre::data
