#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gyre/data/readable_file.h"
#include "gyre/data/sample_set.h"

namespace gyre::data {

enum class SampleFormat {
  kByContent,  ///< A folder with folders, Parquet, tar archives, IDX, CIFAR-10's file names, else TFRecord.
  kTfRecord,
  kImageFolder,
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
};

/// The samples of `names`: files, or one folder with a folder for each class. Errors are those of the format's set.
std::shared_ptr<const SampleSet> open_samples(std::vector<std::string> names, const FileOpener& open,
                                              const SampleOptions& options);

/// Tells whether two runs read the same samples, wherever these lie: from the files' names without their folders, the
/// number of samples, and the beginning of the first file, which is not opened if its `records_per_file` are given.
std::uint64_t files_checksum(const std::vector<std::string>& names, const FileOpener& open, const SampleSet& set,
                             const SampleOptions& options);

}  // namespace gyre::data
