#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gyre/data/readable_file.h"
#include "gyre/data/sample_set.h"

namespace gyre::data {

/// Whether a file begins as Parquet files do.
bool is_parquet(std::span<const std::byte> first_bytes);

/// GYRE_PYARROW: the folder of the package pyarrow, where it stands in another environment; else empty.
std::string pyarrow_folder_from_environment();

struct ParquetOptions {
  /// The columns that are read: by name, "outer.inner" within structs. "outer" alone is its "outer.bytes", where data
  /// sets of Hugging Face keep an image. Empty: all columns of a type that is read.
  std::vector<std::string> columns{};
  /// Where the Python package pyarrow stands, whose libraries read the files; empty: where the build or the wheel has
  /// it. See pyarrow_folder_from_environment().
  std::string pyarrow_folder{};
  int threads = 1;  ///< That read footers.
};

/// The rows of some Parquet files, numbered from 0 through all files in the order in which these are given. Numbers,
/// byte strings, and lists of these are features. A row group is decoded as a whole, once for all readers that share a
/// budget, and stays in memory as long as half of that has room; SampleSet::blocks() are the row groups.
/// Reads the footers. Errors name the file: those of `open`; kCorruptData; kInvalidArgument where there are no rows, or
/// a column is missing; kUnsupported where a column is of a type that is not read, and without pyarrow.
std::shared_ptr<const SampleSet> open_parquet(std::vector<std::string> names, FileOpener open,
                                              const ParquetOptions& options);

}  // namespace gyre::data
