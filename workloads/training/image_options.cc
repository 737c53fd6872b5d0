#include "workloads/training/image_options.h"

#include <fmt/format.h>

#include <string>

namespace gyre::training {

void add_validation_share(CLI::App& app, std::optional<double>& share) {
  app.add_option("--validation-share", share,
                 "Hold out this share of each class of an image folder for validation (0.1), as --seed says")
      ->check([](const std::string& text) {
        double value = 0;
        if (CLI::detail::lexical_cast(text, value) && value > 0 && value < 1) return std::string();
        return fmt::format("'{}' is not a number above 0 and below 1", text);
      })
      ->type_name("SHARE");
}

}  // namespace gyre::training
