#include "apps/gyre/node_program.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include "apps/gyre/launch_command.h"
#include "apps/gyre/node_command.h"
#include "apps/gyre/program_start.h"
#include "apps/gyre/usage_error.h"
#include "gyre/base/error.h"
#include "gyre/cli/parse_error.h"

namespace gyre::app {

namespace {

/// As `setsid --fork` does.
int run_detached(char** command) {
  const pid_t child = ::fork();
  if (child != 0) return child > 0 ? 0 : 1;
  ::setsid();
  ::execv(command[0], command);
  fmt::print(stderr, "cannot start {}: {}\n", command[0], std::strerror(errno));
  ::_exit(1);
}

int run_verb(int argc, char** argv, const std::string& verb) {
  const std::vector<std::string> environment = own_environment();
  if (verb == "agent-shell") return NodeShellCommands::run_client({argv + 2, argv + argc}, environment);
  if (verb == "detach" && argc > 2) return run_detached(argv + 2);
  CLI::App app{"Gyre's processes on the nodes of a job. The job service starts it; people use gyre.", "gyre-node"};
  app.set_version_flag("--version", "gyre-node " GYRE_VERSION);
  app.require_subcommand(1);
  const AttemptCommand attempt(app);
  const ContainerCommands container(app);
  const LaunchCommand launch(app);
  const NodeShellCommands shell(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    const auto verbs = app.get_subcommands();
    return usage_failure("gyre-node", cli::describe(error, verbs.empty() ? app : *verbs.front()));
  }
  if (verb == "attempt") return attempt.run(environment);
  if (verb == AttemptCommand::kCommandVerb) return attempt.run_command(environment);
  if (verb == "hold") container.run_holder(environment);
  if (verb == "enter") return container.run_entry(environment);
  if (verb == "launch") return launch.run(environment);
  return shell.run_server(environment);
}

}  // namespace

int node_program(int argc, char** argv) {
  const std::string verb = argc > 1 ? argv[1] : "";
  const std::string where = verb.empty() || verb.starts_with('-') ? "gyre-node" : "gyre-node " + verb;
  try {
    return run_verb(argc, argv, verb);
  } catch (const UsageError& error) {
    return usage_failure(where, error.what());
  } catch (const std::exception& error) {
    print_failure(where, error.what());
    return 1;
  }
}

}  // namespace gyre::app
