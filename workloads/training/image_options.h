#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "workloads/training/program_options.h"

namespace gyre::training {

/// What programs that learn the classes of images can be told besides.
struct ImageProgramOptions : ProgramOptions {
  std::int64_t image_size = 0;  ///< Pixels along each side.
  std::int64_t classes = 0;     ///< Where the data does not say how many.
  bool classes_given = false;   ///< By the person.
  /// Of the training set, held out for evaluations; nothing: there is a set for them.
  std::optional<double> validation_share{};
};

/// Error(kInvalidArgument) where the person has said another number than that of the classes `found` in the data.
void check_classes(const ImageProgramOptions& options, std::int64_t found);

/// See result_options() of ProgramOptions.
std::map<std::string, std::string> result_options(const ImageProgramOptions& options, int ranks);

/// --image-size from `least_size` to `most_size`, --classes, --validation-share, and --target-accuracy, a target of the
/// metric "accuracy".
void add_image_options(CLI::App& app, ImageProgramOptions& options, std::int64_t least_size, std::int64_t most_size);

}  // namespace gyre::training
