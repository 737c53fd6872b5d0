// The command line of Gyre: parses, wires, runs.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "apps/gyre/job.h"
#include "apps/gyre/launch_command.h"
#include "apps/gyre/metrics_command.h"
#include "apps/gyre/node_command.h"
#include "apps/gyre/page_command.h"
#include "apps/gyre/parameter_server_command.h"
#include "apps/gyre/program_start.h"
#include "apps/gyre/python_verb.h"
#include "apps/gyre/report_command.h"
#include "apps/gyre/resource_commands.h"
#include "apps/gyre/run_cluster.h"
#include "apps/gyre/run_command.h"
#include "apps/gyre/run_page.h"
#include "apps/gyre/run_staging.h"
#include "apps/gyre/server_command.h"
#include "apps/gyre/stage_command.h"
#include "apps/gyre/store_command.h"
#include "apps/gyre/top_command.h"
#include "apps/gyre/verb_group.h"
#include "gyre/base/error.h"
#include "gyre/cli/option_table.h"
#include "gyre/cli/parse_error.h"
#include "gyre/cli/suggest.h"
#include "gyre/net/http/error.h"

namespace {

using gyre::app::usage_failure;
using gyre::app::VerbGroup;

/// Prints the options and verbs as JSON, for `gyre completion`.
constexpr const char* kTableOption = "--option-table";

/// Verbs written in Python, which read their options themselves.
struct PythonVerb {
  const char* name;
  const char* module;
  const char* description;
};
constexpr std::array kPythonVerbs = {
    PythonVerb{"explain", "gyre.explain.__main__", "Run a job and report where its exchange spends its time"},
    PythonVerb{"bench", "gyre.bench.__main__", "Measure Gyre, compared with its bounds and its alternatives"},
    PythonVerb{"export", "gyre.models.export", "Write a trained network for others to use"},
    PythonVerb{"score", "gyre.models.score", "Predict with a trained network, on one rank or many"},
    PythonVerb{"doctor", "gyre.doctor", "Check the installation, and say how to fix problems"},
    PythonVerb{"completion", "gyre.completion", "Write the shell completion of gyre and its training programs"},
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

/// All verbs in C++, and the words that may come first.
struct CommandLine {
  CLI::App app{"Gyre trains deep-learning models on many processes, from one command.", "gyre"};
  gyre::app::RunCommand run{
      app,
      {.staging = std::make_unique<gyre::app::RunStaging>(),
       .write_report = [](const std::string& file, const std::string& target,
                          const std::string& timeline) { gyre::app::write_report({file}, target, timeline); },
       .page = std::make_unique<gyre::app::RunPage>(),
       .cluster = std::make_unique<gyre::app::RunCluster>()}};
  gyre::app::JobCommand job{app};
  gyre::app::ServerCommand server{app};
  std::unique_ptr<VerbGroup> clusters = gyre::app::cluster_verbs(app);
  std::unique_ptr<VerbGroup> images = gyre::app::image_verbs(app);
  std::unique_ptr<VerbGroup> experiments = gyre::app::experiment_verbs(app);
  std::unique_ptr<VerbGroup> workspaces = gyre::app::workspace_verbs(app);
  std::unique_ptr<VerbGroup> users = gyre::app::user_verbs(app);
  gyre::app::StageCommand stage{app};
  std::unique_ptr<VerbGroup> stores = gyre::app::store_verbs(app);
  std::unique_ptr<VerbGroup> metrics = gyre::app::metrics_verbs(app);
  gyre::app::ReportCommand report{app};
  gyre::app::TopCommand top{app};
  gyre::app::PageCommand page{app};
  gyre::app::UsageCommand usage{app};
  gyre::app::LaunchCommand launch{app};
  gyre::app::NodeProgramCommand program{app};
  gyre::app::AttemptCommand attempt{app};
  gyre::app::ContainerCommands container{app};
  gyre::app::ParameterServerCommand parameter_server{app};
  gyre::app::NodeShellCommands node_shell{app};
  std::vector<VerbGroup*> groups{&job.group(),     clusters.get(), images.get(), experiments.get(),
                                 workspaces.get(), users.get(),    stores.get(), metrics.get()};
  std::vector<std::string> words{"help", "version", "--help", "-h", "--version", kTableOption};

  CommandLine() {
    app.set_version_flag("--version", "gyre " GYRE_VERSION);
    app.footer(
        "\nExamples:\n  gyre run -n 4 -- python train.py\n  gyre job run job.json --mount external=/data/share\n"
        "  gyre bench exchange resnet50\n  gyre run --help");
    for (const PythonVerb& verb : kPythonVerbs) app.add_subcommand(verb.name, verb.description);
    for (const CLI::App* verb : app.get_subcommands({})) words.push_back(verb->get_name());
  }

  VerbGroup* group(const std::string& name) const {
    const auto found = std::ranges::find(groups, name, &VerbGroup::name);
    return found == groups.end() ? nullptr : *found;
  }
};

/// The options of the verb, without the command that it runs and that has options of its own.
std::vector<std::string> without_command(CommandLine& line, std::vector<std::string> arguments) {
  const bool runs = arguments.front() == "run";
  const std::string verb = arguments.front() == "job" && arguments.size() > 1 ? arguments[1] : "";
  const bool submits = verb == "submit";
  if (!runs && !submits && verb != "shell") return arguments;
  const auto begin = arguments.begin() + (runs ? 1 : 2);
  const std::vector<std::string> rest(begin, arguments.end());
  const std::vector<std::string> options = runs      ? line.run.take_command(rest)
                                           : submits ? line.job.submit().take_command(rest)
                                                     : line.job.shell().take_command(rest);
  arguments.erase(begin, arguments.end());
  arguments.insert(arguments.end(), options.begin(), options.end());
  return arguments;
}

int run_verb(CommandLine& line, const std::string& called_as, std::vector<std::string> arguments) {
  const std::string first = arguments.front();
  const auto verb = std::ranges::find(kPythonVerbs, first, &PythonVerb::name);
  if (verb != kPythonVerbs.end()) {
    gyre::app::become_python_verb(first, verb->module, {arguments.begin() + 1, arguments.end()}, called_as);
  }
  const std::vector<std::string> environment = gyre::app::own_environment();
  if (first == "agent-shell") {
    return gyre::app::NodeShellCommands::run_client({arguments.begin() + 1, arguments.end()}, environment);
  }
  arguments = without_command(line, std::move(arguments));
  std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the back.
  line.app.parse(arguments);
  if (const VerbGroup* group = line.group(first)) return group->run(environment);
  if (first == "agent") return line.program.run(environment, called_as);
  if (first == "attempt") return line.attempt.run(environment);
  if (first == gyre::app::AttemptCommand::kCommandVerb) return line.attempt.run_command(environment);
  if (first == "enter") return line.container.run_entry(environment);
  if (first == "agent-shell-server") return line.node_shell.run_server(environment);
  if (first == "launch") return line.launch.run(environment);
  if (first == gyre::app::ParameterServerCommand::kName) return gyre::app::ParameterServerCommand::run();
  if (first == "page") return line.page.run(environment);
  if (first == "report") return line.report.run();
  if (first == "server") return line.server.run(environment);
  if (first == "stage") return line.stage.run(environment);
  if (first == "top") return line.top.run(environment);
  if (first == "usage") return line.usage.run(environment);
  return line.run.run(environment);
}

int failure(const std::string& where, const gyre::Error& error) {
  const auto* answer = dynamic_cast<const gyre::net::http::HttpError*>(&error);
  if (answer == nullptr && error.code() == gyre::ErrorCode::kInvalidArgument) return usage_failure(where, error.what());
  gyre::app::print_failure(where, error.what());
  return 1;
}

/// A command line that cannot be read. `gyre job shell` has a command's exit code, which may be 2.
int mistake(const std::string& where, const std::string& message, CommandLine& line) {
  if (where != gyre::app::JobShell::kVerb) return usage_failure(where, message);
  usage_failure(where, message + line.job.shell().hint());
  return gyre::app::JobShell::kOursExitCode;
}

int parse_and_run(const std::string& called_as, std::vector<std::string> arguments) {
  CommandLine line;
  arguments = with_options_for_help(std::move(arguments));
  const std::string first = arguments.front();
  if (std::ranges::find(line.words, first) == line.words.end()) {
    if (first.starts_with('-')) return usage_failure("gyre", gyre::cli::no_such_option(first, {"--help", "--version"}));
    const auto meant = gyre::cli::nearest(first, line.words);
    return usage_failure(
        "gyre", fmt::format("unknown command '{}'{}", first, meant ? fmt::format("; did you mean '{}'?", *meant) : ""));
  }
  if (first == kTableOption) {
    fmt::print("{}\n", gyre::cli::option_table(line.app).dump());
    return 0;
  }
  const VerbGroup* group = line.group(first);
  const bool in_group = group != nullptr && arguments.size() > 1 && group->has_verb(arguments[1]);
  const std::string where = first.starts_with('-') ? "gyre" : "gyre " + first + (in_group ? " " + arguments[1] : "");
  try {
    return run_verb(line, called_as, std::move(arguments));
  } catch (const CLI::Success& help) {
    return line.app.exit(help);
  } catch (const CLI::ParseError& error) {
    const auto verbs = line.app.get_subcommands([&](const CLI::App* verb) { return verb->get_name() == first; });
    return mistake(where, gyre::cli::describe(error, verbs.empty() ? line.app : *verbs.front()), line);
  } catch (const gyre::app::UsageError& error) {
    return mistake(where, error.what(), line);
  } catch (const gyre::Error& error) {
    return failure(where, error);
  }
}

}  // namespace

int main(int argc, char** argv) {
  gyre::app::ensure_standard_descriptors();
  try {
    std::vector<std::string> arguments(argv + (argc > 0 ? 1 : 0), argv + argc);
    const std::string verb = arguments.empty() ? "" : arguments.front();
    const bool stages = std::ranges::any_of(arguments, [](const auto& word) { return word.starts_with("--stage"); });
    const bool reads_sources = verb == "stage" || verb == "store" || (verb == "run" && stages);
    if (reads_sources && gyre::app::hide_signatures(argc, argv)) {
      fmt::print(stderr,
                 "gyre {}: a signature on the command line can be read by others while the program starts, and "
                 "stays in the shell's "
                 "history; {} without\n",
                 verb,
                 verb == "stage" ? "--sas @FILE, --sas env:NAME and AZURE_STORAGE_SAS_TOKEN do"
                 : verb == "run" ? "--stage-sas @FILE, --stage-sas env:NAME and AZURE_STORAGE_SAS_TOKEN do"
                                 : "AZURE_STORAGE_SAS_TOKEN does");
    }
    return parse_and_run(argc > 0 ? argv[0] : "gyre", std::move(arguments));
  } catch (const std::exception& error) {
    gyre::app::print_failure("gyre", error.what());
    return 1;
  }
}
