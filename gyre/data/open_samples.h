#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gyre/data/readable_file.h"
#include "gyre/data/sample_set.h"

namespace gyre::data {

enum class SampleFormat {
  kByContent,  ///< A folder, Parquet, tar archives, IDX, JPEG and PNG, CIFAR-10's file names, else TFRecord.
  kTfRecord,
  kImageFolder,  ///< One folder, with a folder for each class.
  kImages,       ///< Without labels: image files, and folders of them.
  kTar,
  kIdx,
  kCifar10,
  kParquet,
};

struct SampleOptions {
  SampleFormat format = SampleFormat::kByContent;
  std::uint64_t records_per_file = 0;  ///< Of TFRecord files, see RecordSetOptions.
  int threads = 1;                     ///< That look through the files.
  /// The features that are asked for, where that is known: others need not be read. Empty: all.
  std::vector<std::string> features{};
  std::string pyarrow_folder{};  ///< Of Parquet files, see ParquetOptions.
  /// Of an image folder: names of classes by label, see ImageFolder. Empty: the folders' own.
  std::vector<std::string> classes{};
};

/// What open_samples() is to be given where a person names a folder: the folder itself if it has class folders
/// (whatever stands beside them) or images, else the files in it that are not hidden, sorted. image_listing.h says what
/// is hidden. Error(kNotFound, kIo), kInvalidArgument where there is nothing.
std::vector<std::string> files_of_folder(const std::string& folder, const FileOpener& open);

/// The samples of `names`: files, one folder with a folder for each class, or image files. Errors are those of the
/// format's set.
std::shared_ptr<const SampleSet> open_samples(std::vector<std::string> names, const FileOpener& open,
                                              const SampleOptions& options);

/// Tells whether two runs read the same samples, wherever these lie: from the files' names without their folders, the
/// number of samples, and the beginning of the first file, which is not opened if its `records_per_file` are given.
std::uint64_t files_checksum(const std::vector<std::string>& names, const FileOpener& open, const SampleSet& set,
                             const SampleOptions& options);

}  // namespace gyre::data
