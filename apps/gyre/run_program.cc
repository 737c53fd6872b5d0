#include "apps/gyre/run_program.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>

#include "apps/gyre/parameter_server_command.h"
#include "apps/gyre/program_start.h"
#include "apps/gyre/run_command.h"
#include "apps/gyre/usage_error.h"
#include "gyre/cli/parse_error.h"

namespace gyre::app {

namespace {

int run_verb(const std::string& name, std::vector<std::string> arguments) {
  CLI::App app{"The launcher of `gyre run`; people use gyre.", name};
  app.set_version_flag("--version", name + " " GYRE_VERSION);
  app.require_subcommand(1);
  RunCommand run(app, {});
  const ParameterServerCommand parameter_server(app);
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
    return usage_failure(name, cli::describe(error, verbs.empty() ? app : *verbs.front()));
  }
  if (verb == "run") return run.run(own_environment());
  return ParameterServerCommand::run();
}

}  // namespace

int run_program(const std::string& name, const std::vector<std::string>& arguments) {
  try {
    return run_verb(name, arguments);
  } catch (const UsageError& error) {
    return usage_failure(name + " run", error.what());
  } catch (const std::exception& error) {
    print_failure(name, error.what());
    return 1;
  }
}

}  // namespace gyre::app
