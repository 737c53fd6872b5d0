// The command line of Gyre: parses, wires, runs.

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "apps/gyre/agent_command.h"
#include "apps/gyre/job.h"
#include "apps/gyre/launch_command.h"
#include "apps/gyre/python_verb.h"
#include "apps/gyre/run_command.h"
#include "gyre/base/error.h"
#include "gyre/cli/option_table.h"
#include "gyre/cli/suggest.h"

extern char** environ;

namespace {

constexpr int kUsageExitCode = 2;
/// Prints the options and verbs as JSON, for `gyre completion`.
constexpr const char* kTableOption = "--option-table";

/// A descriptor that we open must never become somebody's stdin, stdout or stderr.
void ensure_standard_descriptors() {
  for (;;) {
    const int fd = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    if (fd < 0) return;
    if (fd > STDERR_FILENO) {
      ::close(fd);
      return;
    }
  }
}

std::vector<std::string> environment_from_environment() {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry != nullptr; ++entry) entries.emplace_back(*entry);
  return entries;
}

int usage_failure(const std::string& where, const std::string& message) {
  fmt::print(stderr, "{}: {}\nSee `{} --help`.\n", where, message, where);
  return kUsageExitCode;
}

/// Verbs written in Python, which read their options themselves.
struct PythonVerb {
  const char* name;
  const char* module;
  const char* description;
};
constexpr std::array kPythonVerbs = {
    PythonVerb{"explain", "gyre.explain.__main__", "Run a job and say where the time of its exchange goes"},
    PythonVerb{"bench", "gyre.bench.__main__", "Measure the exchange, beside its bound and what others take"},
    PythonVerb{"doctor", "gyre.doctor", "Say what was built and found, what is wrong, and what mends it"},
    PythonVerb{"completion", "gyre.completion", "Write the shell's completion of gyre and gyre-cifar10"},
};

/// `gyre help run` is `gyre run --help`, `gyre version` is `gyre --version`.
std::vector<std::string> with_options_for_help(std::vector<std::string> arguments) {
  if (arguments.empty()) return {"--help"};
  if (arguments.front() == "version") arguments.front() = "--version";
  if (arguments.front() != "help") return arguments;
  arguments.erase(arguments.begin());
  arguments.emplace_back("--help");
  return arguments;
}

int parse_and_run(const std::string& called_as, std::vector<std::string> arguments) {
  CLI::App app("Gyre trains deep-learning models on many processes, from one command.", "gyre");
  app.set_version_flag("--version", "gyre " GYRE_VERSION);
  app.footer("\nExamples:\n  gyre run -n 4 -- python train.py\n  gyre bench exchange resnet50\n  gyre run --help");
  gyre::app::RunCommand run(app);
  const gyre::app::LaunchCommand launch(app);
  const gyre::app::JobCommand job(app);
  const gyre::app::AgentCommand agent(app);
  const gyre::app::AgentShellCommands agent_shell(app);
  std::vector<std::string> known = {"run",  "launch",  "job",    "agent",     "agent-shell", "agent-shell-server",
                                    "help", "version", "--help", "--version", kTableOption};
  for (const PythonVerb& verb : kPythonVerbs) {
    app.add_subcommand(verb.name, verb.description);
    known.push_back(verb.name);
  }

  arguments = with_options_for_help(std::move(arguments));
  const std::string first = arguments.front();
  if (first != "-h" && std::ranges::find(known, first) == known.end()) {
    const auto meant = gyre::cli::nearest(first, known);
    return usage_failure("gyre", fmt::format("there is no {} '{}'{}", first.starts_with('-') ? "option" : "verb", first,
                                             meant ? fmt::format("; did you mean '{}'?", *meant) : ""));
  }
  if (first == kTableOption) {
    fmt::print("{}\n", gyre::cli::option_table(app).dump());
    return 0;
  }
  const bool in_group = first == "job" && arguments.size() > 1 && job.has_verb(arguments[1]);
  const std::string where = first.starts_with('-') ? "gyre" : "gyre " + first + (in_group ? " " + arguments[1] : "");
  try {
    const auto verb = std::ranges::find(kPythonVerbs, first, &PythonVerb::name);
    if (verb != kPythonVerbs.end()) {
      gyre::app::become_python_verb(first, verb->module, {arguments.begin() + 1, arguments.end()}, called_as);
    }
    if (first == "agent-shell") {
      return gyre::app::AgentShellCommands::run_client({arguments.begin() + 1, arguments.end()},
                                                       environment_from_environment());
    }
    if (first == "run") {
      arguments.erase(arguments.begin());
      arguments = run.take_command(arguments);
      arguments.insert(arguments.begin(), first);
    }
    std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the back.
    app.parse(arguments);
    if (first == "agent") return agent.run(environment_from_environment(), called_as);
    if (first == "agent-shell-server") return agent_shell.run_server(environment_from_environment());
    if (first == "launch") return launch.run(environment_from_environment());
    if (first == "job") return job.run(environment_from_environment());
    return run.run(environment_from_environment());
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    return usage_failure(where, error.what());
  } catch (const gyre::app::UsageError& error) {
    return usage_failure(where, error.what());
  } catch (const gyre::Error& error) {
    if (error.code() == gyre::ErrorCode::kInvalidArgument) return usage_failure(where, error.what());
    fmt::print(stderr, "{}: {}\n", where, error.what());
    return 1;
  }
}

}  // namespace

int main(int argc, char** argv) {
  ensure_standard_descriptors();
  try {
    return parse_and_run(argc > 0 ? argv[0] : "gyre", std::vector<std::string>(argv + (argc > 0 ? 1 : 0), argv + argc));
  } catch (const std::exception& error) {
    fmt::print(stderr, "gyre: {}\n", error.what());
    return 1;
  }
}
