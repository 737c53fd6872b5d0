#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gyre/data/formats/cifar10_images.h"

namespace gyre::data {

/// The files of CIFAR-10, or of any set in its layout.
struct Cifar10Files {
  std::vector<std::string> train;
  std::vector<std::string> test;
  std::filesystem::path folder;  ///< Where they were found.
};

/// Finds the data set in `folder`, or in its subfolder cifar-10-batches-bin or cifar-10-batches-py; nothing where none
/// of its files is there. Two layouts are recognised by their file names; when both are there the binary one is taken:
///   binary  data_batch_1.bin … data_batch_5.bin, test_batch.bin: records of 1 label byte and 3072 pixel bytes
///   python  data_batch_1 … data_batch_5, test_batch: pickled dicts with `data` (uint8, n x 3072) and `labels`
/// Pixels are plane-major: 1024 red, 1024 green, 1024 blue, each row by row.
/// Error(kNotFound) where the folder does not exist, or some of a layout's files are missing, which it names.
/// Source of the layout: https://www.cs.toronto.edu/~kriz/cifar.html
std::optional<Cifar10Files> find_cifar10(const Folders& folders, const std::filesystem::path& folder);

/// The names of the classes 0, 1, … that batches.meta.txt or batches.meta in `folder` lists, in this order of
/// preference; empty where neither is there. Error(kCorruptData) names the damaged file.
std::vector<std::string> cifar10_class_names(const std::filesystem::path& folder, const FileOpener& open);

/// Some files of such a set, in either layout, as one; files named *.bin are binary. Error(kCorruptData) names the
/// damaged file and where.
Cifar10Images open_cifar10_files(std::span<const std::string> names, const FileOpener& open);

/// One file of the python layout, already in memory; its pixels are in the result's memory. For tests and fuzzing.
Cifar10Records parse_cifar10_pickle(std::span<const std::byte> bytes, std::string_view name);

}  // namespace gyre::data
