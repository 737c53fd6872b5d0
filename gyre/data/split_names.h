#pragma once

#include <optional>
#include <string_view>

namespace gyre::data {

/// The sets that people divide their data into.
enum class Split { kTraining, kValidation, kTest };

/// The set that a folder, or a group of files, is usually given this name for, in any case: "train" and "training";
/// "val", "valid" and "validation"; "test", "testing" and, of MNIST's files, "t10k". Nothing for any other name.
std::optional<Split> split_of(std::string_view name);

}  // namespace gyre::data
