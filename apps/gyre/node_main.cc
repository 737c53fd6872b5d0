// The program `gyre-node`: those verbs of `gyre` of which each attempt of a job starts a process or two on each of its
// nodes. `gyre` itself loads the libraries of all its verbs, which takes longer than everything that such a process
// does (docs/adr/0103-attempts-start-a-small-program.md).

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
  const std::vector<std::string> environment = gyre::app::own_environment();
  if (verb == "agent-shell") return gyre::app::NodeShellCommands::run_client({argv + 2, argv + argc}, environment);
  if (verb == "detach" && argc > 2) return run_detached(argv + 2);
  CLI::App app{"Gyre's processes on the nodes of a job. The job service starts it; people use gyre.", "gyre-node"};
  app.set_version_flag("--version", "gyre-node " GYRE_VERSION);
  app.require_subcommand(1);
  const gyre::app::AttemptCommand attempt(app);
  const gyre::app::ContainerCommands container(app);
  const gyre::app::LaunchCommand launch(app);
  const gyre::app::NodeShellCommands shell(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    const auto verbs = app.get_subcommands();
    return gyre::app::usage_failure("gyre-node", gyre::cli::describe(error, verbs.empty() ? app : *verbs.front()));
  }
  if (verb == "attempt") return attempt.run(environment);
  if (verb == "hold") container.run_holder(environment);
  if (verb == "enter") return container.run_entry(environment);
  if (verb == "launch") return launch.run(environment);
  return shell.run_server(environment);
}

}  // namespace

int main(int argc, char** argv) {
  gyre::app::ensure_standard_descriptors();
  const std::string verb = argc > 1 ? argv[1] : "";
  const std::string where = verb.empty() || verb.starts_with('-') ? "gyre-node" : "gyre-node " + verb;
  try {
    return run_verb(argc, argv, verb);
  } catch (const gyre::app::UsageError& error) {
    return gyre::app::usage_failure(where, error.what());
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", where, error.what());
    return 1;
  }
}
