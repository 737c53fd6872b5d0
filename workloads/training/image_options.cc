#include "workloads/training/image_options.h"

#include <fmt/format.h>

#include <string>

#include "gyre/base/error.h"
#include "gyre/cli/number_check.h"

namespace gyre::training {

void check_classes(const ImageProgramOptions& options, std::int64_t found) {
  if (!options.classes_given || options.classes == found) return;
  throw Error(
      ErrorCode::kInvalidArgument,
      fmt::format("--classes is {}, and the data in {} has {} classes: leave the option out, or choose the data "
                  "that you meant",
                  options.classes, options.data_dir.string(), found));
}

std::map<std::string, std::string> result_options(const ImageProgramOptions& options, int ranks) {
  std::map<std::string, std::string> record = result_options(static_cast<const ProgramOptions&>(options), ranks);
  record["--image-size"] = fmt::format("{}", options.image_size);
  record["--classes"] = fmt::format("{}", options.classes);
  record["--validation-share"] = fmt::format("{}", options.validation_share.value_or(0));
  return record;
}

void add_image_options(CLI::App& app, ImageProgramOptions& options, std::int64_t least_size, std::int64_t most_size) {
  app.add_option("--image-size", options.image_size, "Pixels per side")
      ->check(CLI::Range(least_size, most_size))
      ->capture_default_str();
  app.add_option("--classes", options.classes, "Number of classes; counted for an image folder")
      ->check(CLI::Range(2, 1 << 20))
      ->each([&options](const std::string& /*value*/) { options.classes_given = true; })
      ->capture_default_str();
  app.add_option("--validation-share", options.validation_share,
                 "Hold out this share of each class of an image folder for validation (0.1), as --seed says")
      ->check([](const std::string& text) {
        double value = 0;
        if (CLI::detail::lexical_cast(text, value) && value > 0 && value < 1) return std::string();
        return fmt::format("'{}' is not a number above 0 and below 1", text);
      })
      ->type_name("SHARE");
  app.add_option_function<double>(
         "--target-accuracy", [&options](double value) { options.target = {.metric = "accuracy", .value = value}; },
         "Stop when the accuracy of the evaluation reaches this value (0 to 1)")
      ->check(cli::check_share);
}

}  // namespace gyre::training
