#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gyre/data/readable_file.h"

namespace gyre::data {

/// One of the sets in a folder of data.
struct SetPlace {
  std::string name;                ///< "Train"; of files "train-*".
  std::vector<std::string> paths;  ///< The folder, or the files, sorted.
  bool is_folder = false;
};

/// What a program trains and validates with, of what a folder holds. A set is a folder with one of the names in
/// split_names.h, or the files whose names begin with one and a hyphen (train-00000-of-00004); of both, the folder.
/// Files of text (train-labels.csv) are none.
struct DataSets {
  std::optional<SetPlace> training{};
  /// The validation set; where there is none, the test set.
  std::optional<SetPlace> validation{};
  bool validation_is_test_set = false;
  std::vector<std::string> left_aside{};  ///< The names of the other sets.
  /// Folders with images that may be classes, where there is no training set. A folder "train" that holds images, and
  /// no folders, beside at least two of them is one of them: the vehicle.
  std::vector<std::string> classes{};
};

/// What `folder` has. With `hold_out` a part of the training set is to be held out: the class folders in `folder` are
/// then its training set where it has no other, and only a validation set is taken for `validation`. Error(kNotFound,
/// kIo) where `folder` cannot be read; kInvalidArgument where two folders, or two groups of files, are the same set
/// that would be used, and where other sets stand among the class folders.
DataSets find_data_sets(const Folders& folders, const std::string& folder, bool hold_out);

}  // namespace gyre::data
