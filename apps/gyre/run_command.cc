#include "apps/gyre/run_command.h"

#include <fmt/format.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <memory>

#include "apps/gyre/suggest.h"
#include "gyre/base/parse.h"
#include "gyre/base/process.h"
#include "gyre/jobs/launch.h"

namespace gyre::app {

namespace {

constexpr const char* kExamples = R"(
COMMAND is started once for each rank. `--` may be left out when no option of `gyre run` follows it.

Examples:
  gyre run -n 4 -- python train.py --epochs 10
  gyre run -n 2 --log-dir logs --timeline trace.json -- ./my-program
  gyre run -n 8 --env OMP_NUM_THREADS=2 -- python train.py

Exit code: 0 when every rank ended with 0; else that of the first rank that failed (128 + signal when one killed it);
130 after Ctrl-C, 143 after SIGTERM; 127 when COMMAND does not exist, 126 when it cannot be run; 2 for a wrong option.)";

class RunHelp : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App*, std::string) const override {
    return "Usage: gyre run [OPTIONS] -- COMMAND [ARGUMENTS…]\n";
  }
};

bool takes_value(const CLI::Option& option) { return option.get_items_expected_max() > 0; }

std::vector<std::string> option_names(const CLI::App& verb) {
  std::vector<std::string> names;
  for (const CLI::Option* option : verb.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

/// "--log-dir" of "--log-dir=logs"; "-n" of "-n4".
std::string option_name(const std::string& word) {
  return word.starts_with("--") ? word.substr(0, word.find('=')) : word.substr(0, 2);
}

bool holds_value(const std::string& word) {
  return word.starts_with("--") ? word.find('=') != std::string::npos : word.size() > 2;
}

std::string hint_for(const SpawnError& error, const std::string& command) {
  if (error.errno_value() != ENOENT && error.errno_value() != EACCES && error.errno_value() != ENOEXEC) return {};
  const bool here = command.find('/') == std::string::npos && std::filesystem::exists(command);
  if (command.ends_with(".py") && (here || error.errno_value() != ENOENT)) {
    return fmt::format("; a Python script is started as `python {}`", command);
  }
  if (here) return fmt::format("; the file of that name in this folder is started as `./{}`", command);
  if (error.errno_value() == EACCES) return fmt::format("; `chmod +x {}` makes a program executable", command);
  if (command.find('/') == std::string::npos) return " in any folder of PATH";
  return {};
}

}  // namespace

RunCommand::RunCommand(CLI::App& app) : verb_(app.add_subcommand("run", "Start the ranks of a job on this host")) {
  verb_->formatter(std::make_shared<RunHelp>());
  verb_->add_option("-n,--ranks", ranks_, fmt::format("How many ranks, 1 to {}", jobs::kMostRanksPerHost))
      ->type_name("N")
      ->capture_default_str();
  verb_->add_option("--log-dir", log_dir_, "Keep each rank's output in DIR/rank-N.log")->type_name("DIR");
  verb_->add_option("--timeline", timeline_, "Have rank 0 write a trace for chrome://tracing or Perfetto")
      ->type_name("FILE");
  verb_->add_option("--env", variables_, "Set a variable for the ranks; may be given several times")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false);
  verb_->add_option("--grace-seconds", grace_seconds_, "From the first Ctrl-C or SIGTERM until ranks are killed")
      ->type_name("S")
      ->capture_default_str();
  verb_->add_flag("-v,--verbose", verbosity_, "Say what is started; twice: the ranks log in detail");
  verb_->footer(kExamples);
}

std::vector<std::string> RunCommand::take_command(const std::vector<std::string>& arguments) {
  std::size_t next = 0;
  while (next < arguments.size()) {
    const std::string& word = arguments[next];
    if (word == "--" || !word.starts_with('-') || word.size() == 1) break;
    const std::string name = option_name(word);
    const CLI::Option* option = verb_->get_option_no_throw(name);
    if (option == nullptr) {
      const auto meant = nearest(name, option_names(*verb_));
      throw UsageError(
          fmt::format("there is no option {}{}", name, meant ? fmt::format("; did you mean {}?", *meant) : ""));
    }
    const bool value_follows = takes_value(*option) && !holds_value(word);
    if (value_follows && next + 1 == arguments.size()) throw UsageError(fmt::format("{} needs a value", name));
    next += value_follows ? 2 : 1;
  }
  const auto split = arguments.begin() + static_cast<std::ptrdiff_t>(next);
  command_.assign(split, arguments.end());
  if (!command_.empty() && command_.front() == "--") command_.erase(command_.begin());
  return {arguments.begin(), split};
}

int RunCommand::run(const std::vector<std::string>& environment) const {
  if (command_.empty()) throw UsageError("no command to run, as in `gyre run -n 4 -- python train.py`");
  constexpr int kLongestGraceSeconds = 86400;
  jobs::LaunchOptions options;
  options.command = command_;
  options.ranks = static_cast<int>(parse_integer(ranks_, "-n", 1, jobs::kMostRanksPerHost));
  options.grace = std::chrono::seconds(parse_integer(grace_seconds_, "--grace-seconds", 0, kLongestGraceSeconds));
  if (!timeline_.empty()) options.timeline = timeline_;
  if (!log_dir_.empty()) options.log_dir = log_dir_;
  if (verbosity_ > 0) options.log_level = verbosity_ == 1 ? "info" : "debug";
  options.verbose = verbosity_ > 0;
  options.colour = !environment_variable("NO_COLOR") && environment_variable("TERM") != "dumb";
  options.environment = environment;
  for (const std::string& variable : variables_) {
    const std::size_t equals = variable.find('=');
    if (equals == 0 || equals == std::string::npos) {
      throw UsageError(fmt::format("--env needs NAME=VALUE, not '{}'", variable));
    }
    std::erase_if(options.environment, [&](const std::string& entry) {
      return entry.starts_with(std::string_view(variable).substr(0, equals + 1));
    });
    options.environment.push_back(variable);
  }
  try {
    return jobs::launch(options).exit_code;
  } catch (const SpawnError& error) {
    fmt::print(stderr, "gyre run: {}{}\n", error.what(), hint_for(error, command_.front()));
    return error.errno_value() == ENOENT ? 127 : 126;
  }
}

}  // namespace gyre::app
