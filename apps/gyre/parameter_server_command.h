#pragma once

#include <CLI/CLI.hpp>

namespace gyre::app {

/// The verb `gyre parameter-server`, which `gyre run --servers` starts: a rank that owns a part of the parameters.
class ParameterServerCommand {
 public:
  static constexpr const char* kName = "parameter-server";

  explicit ParameterServerCommand(CLI::App& app);

  /// Edge: joins the job that the environment describes, and serves it to its end. Returns the exit code. gyre::Error.
  static int run();
};

}  // namespace gyre::app
