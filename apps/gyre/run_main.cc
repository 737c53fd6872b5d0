// The program `gyre-run`: the verb `gyre run` without staging, and the parameter servers that it starts. `./dev demo`
// builds it in place of `gyre`, which needs twice as many files (docs/adr/0116-the-demo-has-programs-of-its-own.md).

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "apps/gyre/parameter_server_command.h"
#include "apps/gyre/program_start.h"
#include "apps/gyre/run_command.h"
#include "apps/gyre/usage_error.h"
#include "gyre/cli/parse_error.h"

namespace {

int run_verb(std::vector<std::string> arguments) {
  CLI::App app{"The launcher of `gyre run`, for ./dev demo; people use gyre.", "gyre-run"};
  app.set_version_flag("--version", "gyre-run " GYRE_VERSION);
  app.require_subcommand(1);
  gyre::app::RunCommand run(app, {});
  const gyre::app::ParameterServerCommand parameter_server(app);
  const std::string verb = arguments.empty() ? "" : arguments.front();
  if (verb == "run") {
    const std::vector<std::string> options = run.take_command({arguments.begin() + 1, arguments.end()});
    arguments.resize(1);
    arguments.insert(arguments.end(), options.begin(), options.end());
  }
  std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the back.
  try {
    app.parse(arguments);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    const auto verbs = app.get_subcommands();
    return gyre::app::usage_failure("gyre-run", gyre::cli::describe(error, verbs.empty() ? app : *verbs.front()));
  }
  if (verb == "run") return run.run(gyre::app::own_environment());
  return gyre::app::ParameterServerCommand::run();
}

}  // namespace

int main(int argc, char** argv) {
  gyre::app::ensure_standard_descriptors();
  try {
    return run_verb({argv + (argc > 0 ? 1 : 0), argv + argc});
  } catch (const gyre::app::UsageError& error) {
    return gyre::app::usage_failure("gyre-run run", error.what());
  } catch (const std::exception& error) {
    fmt::print(stderr, "gyre-run: {}\n", error.what());
    return 1;
  }
}
