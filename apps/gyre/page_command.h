#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "apps/gyre/remote.h"

namespace gyre::app {

/// `gyre page`: a job server in a browser of this machine.
class PageCommand {
 public:
  explicit PageCommand(CLI::App& app);

  /// After the options were parsed. Serves until a signal; returns the exit code. UsageError, gyre::Error.
  int run(const std::vector<std::string>& environment) const;

 private:
  Remote remote_;
  std::string port_;
};

}  // namespace gyre::app
