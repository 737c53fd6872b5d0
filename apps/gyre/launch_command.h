#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace gyre::app {

/// The verb `gyre launch`: ranks that outlive the process that started them.
class LaunchCommand {
 public:
  explicit LaunchCommand(CLI::App& app);

  /// After the options were parsed. Returns the exit code. gyre::Error.
  int run(const std::vector<std::string>& environment) const;

 private:
  std::string specification_ = "-";
  std::string socket_;
};

}  // namespace gyre::app
