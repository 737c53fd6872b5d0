#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace gyre::app {

/// The verb `gyre job validate`.
class JobValidate {
 public:
  explicit JobValidate(CLI::App& group);

  CLI::App* verb() const { return verb_; }

  /// Returns the exit code: 0 for a valid file, 1 for another one, 2 for one that cannot be read.
  int run(const std::vector<std::string>& environment) const;

 private:
  CLI::App* verb_;
  std::string file_;
  bool strict_ = false;
  std::string output_ = "text";
};

}  // namespace gyre::app
