#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "gyre/data/image_set.h"

namespace gyre::data {

/// CIFAR-10, or any set in its layout: the images to train with and those to test with.
struct Cifar10 {
  ImageSet train;
  ImageSet test;
  std::filesystem::path folder;  ///< Where the files were found.
};

/// Opens the data set in `folder`, or in its subfolder cifar-10-batches-bin or cifar-10-batches-py. Two layouts are
/// recognised by their file names; when both are there the binary one is taken:
///   binary  data_batch_1.bin … data_batch_5.bin, test_batch.bin: records of 1 label byte and 3072 pixel bytes
///   python  data_batch_1 … data_batch_5, test_batch: pickled dicts with `data` (uint8, n x 3072) and `labels`
/// Pixels are plane-major: 1024 red, 1024 green, 1024 blue, each row by row.
/// Error(kNotFound) names what is missing, Error(kCorruptData) the damaged file and where.
/// Source of the layout: https://www.cs.toronto.edu/~kriz/cifar.html
Cifar10 open_cifar10(const std::filesystem::path& folder);

/// Some files of such a set, in either layout, as one; told by their names (.bin is binary).
ImageSet open_cifar10_files(std::span<const std::string> names);

/// One file of the python layout, already in memory; its pixels are in the result's memory. For tests and fuzzing.
ImageRecords parse_cifar10_pickle(std::span<const std::byte> bytes, std::string_view name);

}  // namespace gyre::data
