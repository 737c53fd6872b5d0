#pragma once

#include <string>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/data/data_sets.h"
#include "gyre/data/file_names.h"
#include "gyre/data/formats/cifar10.h"
#include "gyre/data/readable_file.h"

namespace gyre::python {

/// What a training program that is given `folder` evaluates with: the files of its validation or test set. Empty where
/// it is not a folder with a training set and another one.
inline std::vector<std::string> evaluated_files(const std::string& folder, const data::FileOpener& open) {
  if (open.folders().kind(folder) != data::FileKind::kFolder) return {};
  if (const auto cifar10 = data::find_cifar10(open.folders(), folder)) return cifar10->test;
  data::DataSets sets;
  try {
    sets = data::find_data_sets(open.folders(), folder, false);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInvalidArgument) throw;
    return {};  // Its folders may be classes that have names of sets.
  }
  if (!sets.training || !sets.validation) return {};
  const data::SetPlace& place = *sets.validation;
  return place.is_folder ? data::files_of_folder(place.paths.front(), open) : place.paths;
}

}  // namespace gyre::python
