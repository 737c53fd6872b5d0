#include "apps/gyre/job_submit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <string_view>

#include "apps/gyre/job_console.h"
#include "apps/gyre/job_file.h"
#include "apps/gyre/job_place.h"
#include "apps/gyre/run_command.h"
#include "gyre/base/error.h"
#include "gyre/base/process.h"
#include "gyre/cli/number_check.h"
#include "gyre/cli/table.h"
#include "gyre/jobs/spec/command.h"
#include "gyre/jobs/spec/duration.h"
#include "gyre/jobs/spec/parse.h"
#include "gyre/jobs/spec/timelines.h"

namespace gyre::app {

namespace {

using jobs::client::path_of;
using jobs::client::Session;
using jobs::resources::JobName;
using jobs::spec::JobSpec;

constexpr char kExplanation[] = R"(
FILE is a job.json of Batch AI, as JSON or YAML; `-` is stdin. Instead, give a command after `--`, which runs under
`gyre run` on each node. Options come before the file. Prints the job's name; with --follow it prints the job's logs, and
the exit code is the job's (125 if the job is not at fault, or could not be submitted). Ctrl-C leaves the job running.

Examples:
  gyre job submit job.json --cluster pool --follow
  gyre job submit --code . --nodes 2 --processes 4 -- python train.py --epochs 3
  gyre job submit --code . --output '*.pt' --output results -- python train.py
  gyre job submit --code . --requirements requirements.txt -- python train.py
  gyre job submit --name try-1 --env LR=0.1 --secret WANDB_API_KEY -- python train.py
  gyre job wait $(gyre job submit job.json))";

constexpr int kUnusableExitCode = 2;

/// Free text in files of earlier versions.
std::string experiment_of(const JobSpec& spec) {
  if (spec.experiment_name.value_or("").empty()) return kDefaultExperiment;
  const std::string name = as_job_name(*spec.experiment_name);
  if (name != *spec.experiment_name) {
    fmt::print(stderr, "gyre job submit: the file's experimentName '{}' becomes experiment '{}'\n",
               cli::printable(*spec.experiment_name), name);
  }
  return name;
}

bool has_ending(std::string_view file, std::initializer_list<std::string_view> endings) {
  return std::ranges::any_of(endings, [&](std::string_view ending) { return file.ends_with(ending); });
}

/// Of somebody who has given a command, or a script, where a job file belongs.
void check_is_no_command(const std::string& file, const std::vector<std::string>& rest) {
  const bool is_script = has_ending(file, {".py", ".sh"});
  if (rest.empty() && !is_script) return;
  if (has_ending(file, {".json", ".yaml", ".yml"})) {
    throw UsageError(
        fmt::format("'{}' comes after the job file {}; options come before it, and a job file has no arguments",
                    rest.front(), file));
  }
  const char* program = !is_script ? "" : file.ends_with(".py") ? "python " : "bash ";
  throw UsageError(fmt::format("{} is not a job file; a command comes after `--`, as in `gyre job submit -- {}{}{}{}`",
                               file, program, file, rest.empty() ? "" : " ", fmt::join(rest, " ")));
}

}  // namespace

JobSubmit::JobSubmit(VerbGroup& group) : verb_(group.app().add_subcommand("submit", "Submit a job to a job server")) {
  verb_->add_option("FILE", file_, "job.json, or a file of YAML; - is stdin; or `-- COMMAND`");
  verb_->add_option("REST", rest_)->group("");
  verb_->add_option("-n,--name", name_, "The job's name (default: a new one, derived from the file or script)")
      ->type_name("NAME");
  verb_->add_option("-e,--experiment", experiment_, "Its experiment, created if missing (default: default)")
      ->type_name("NAME");
  verb_->add_option("-c,--cluster", cluster_, "Its cluster (default: the file's, else the workspace's only one)")
      ->type_name("NAME");
  verb_->add_option("--nodes", nodes_, "Number of nodes, allocated all at once")
      ->type_name("N")
      ->check(cli::whole_number_from(1));
  add_resource_options();
  verb_->add_option("--processes", processes_, "For a command: number of processes on each node")
      ->type_name("N")
      ->check(cli::whole_number_from(1));
  verb_
      ->add_option("--servers", servers_,
                   "For a command: also start N parameter servers, in turn on the nodes, through which the processes "
                   "exchange gradients")
      ->type_name("N")
      ->check(cli::whole_number_from(0));
  verb_
      ->add_option("--restarts", restarts_,
                   "For a command: maximum number of restarts of all processes after a failure")
      ->type_name("N")
      ->check(cli::whole_number_from(0));
  verb_
      ->add_option(
          "--retries", retries_,
          "For a command: maximum number of further attempts after failures that are not the job's (default: 0; "
          "19 more after lost nodes and absences of the server, unless it is given as 0)")
      ->type_name("N")
      ->check(cli::whole_number_from(0));
  verb_->add_option("--preparation", preparation_, "Shell command that runs on each node before the job")
      ->type_name("LINE");
  verb_
      ->add_option("--requirements", requirements_,
                   "Have each node make a virtual environment of what this pip file names; it is kept for later jobs")
      ->type_name("FILE");
  const auto add_list = [&](const char* names, std::vector<std::string>& values, const char* text, const char* type) {
    verb_->add_option(names, values, text)->type_name(type)->allow_extra_args(false);
  };
  add_list("--env", variables_, "Set a variable for the job; repeatable", "NAME=VALUE");
  add_list("--secret", secrets_, "Pass this variable of your environment as a secret; repeatable", "NAME");
  verb_
      ->add_option("--code", code_,
                   "Upload this folder, and run the job in a copy of it on every node; .gyreignore, or else "
                   ".gitignore, excludes files")
      ->type_name("DIR");
  add_output_option(*verb_, outputs_);
  verb_->add_option("--logs", logs_, "stdOutErrPathPrefix (default for a command: kept by the server)")
      ->type_name("DIR");
  verb_->add_flag("--timeline", timeline_, "Have each rank write a timeline, which the job's page shows");
  verb_->add_option("--priority", priority_, "low, normal or high")
      ->check(CLI::IsMember({"low", "normal", "high"}))
      ->type_name("PRIORITY");
  verb_->add_option("--time-limit", time_limit_, "Fail the job after this time: 12:30:00, PT12H, 7.00:00:00")
      ->type_name("TIME");
  verb_->add_flag("--strict", strict_, "Treat warnings about FILE as errors");
  verb_->add_flag("-f,--follow", follow_, "Show its logs until it ends, and exit with its exit code");
  remote_.add_options(*verb_, Remote::kWorkspace | Remote::kShortOutput);
  verb_->footer(kExplanation);
  group.add(verb_, [this](const std::vector<std::string>& environment) { return run(environment); });
}

void JobSubmit::add_resource_options() {
  verb_
      ->add_option("--gpus-per-node", gpus_per_node_,
                   "Number of GPUs on each node that only this job sees (default: the node's share)")
      ->type_name("N")
      ->check(cli::whole_number_from(0));
  verb_
      ->add_option("--cpus-per-node", cpus_per_node_,
                   "Number of cores that the job may use on each node (default: all)")
      ->type_name("N")
      ->check(cli::whole_number_from(1));
  verb_
      ->add_option("--memory-per-node", memory_per_node_,
                   "Memory that the job may use on each node: 512m, 16gb (default: all)")
      ->type_name("SIZE");
}

std::vector<std::string> JobSubmit::take_command(const std::vector<std::string>& arguments) {
  const auto dashes = std::ranges::find(arguments, "--");
  has_command_ = dashes != arguments.end();
  if (has_command_) command_.assign(dashes + 1, arguments.end());
  return {arguments.begin(), dashes};
}

JobSpec JobSubmit::spec_of_command() const {
  if (!file_.empty())
    throw UsageError(fmt::format("give either a file or a command, not both: '{}' comes before --", file_));
  if (command_.empty()) throw UsageError("there is no command after --");
  jobs::spec::CommandJob command;
  command.program = command_;
  command.nodes = nodes_.value_or(1);
  command.processes_per_node = processes_.value_or(1);
  command.restarts = restarts_.value_or(0);
  command.retries = retries_;
  command.servers = servers_.value_or(0);
  if (!preparation_.empty()) command.preparation = preparation_;
  return jobs::spec::job_of_command(command);
}

std::optional<JobSpec> JobSubmit::spec_of_file(const std::vector<std::string>& environment) const {
  if (file_.empty()) throw UsageError("give a job file, or a command after --");
  check_is_no_command(file_, rest_);
  if (processes_ || restarts_ || retries_ || servers_) {
    throw UsageError("--processes, --restarts, --retries and --servers are for a command after --");
  }
  jobs::spec::ParseOptions options = spec_file_options(file_, environment);
  options.strict = strict_;
  const auto parsed = jobs::spec::parse_job(read_spec_file(file_), options);
  for (const jobs::spec::Problem& problem : parsed.problems) {
    fmt::print(stderr, "{}\n", describe(problem, spec_file_name(file_)));
  }
  return parsed.spec;
}

void JobSubmit::check_code(const JobSpec& spec) const {
  for (const std::string& file : jobs::spec::files_of_code(spec)) {
    if (code_.empty()) {
      throw UsageError(fmt::format("the job names {}, a file of its code; give its folder with --code DIR", file));
    }
    const std::filesystem::path path = std::filesystem::path(code_) / file;
    if (!std::filesystem::is_regular_file(path)) {
      throw UsageError(fmt::format("the job names {}, and there is no file {}", file, path.string()));
    }
    if (spec.requirements) static_cast<void>(read_requirements(path.string(), "requirements"));
  }
}

void JobSubmit::apply_options(JobSpec& spec, const std::vector<std::string>& environment) const {
  if (nodes_) spec.node_count = *nodes_;
  if (gpus_per_node_) spec.gpus_per_node = gpus_per_node_;
  if (cpus_per_node_) spec.cpus_per_node = cpus_per_node_;
  if (!memory_per_node_.empty()) spec.memory_per_node = memory_per_node_;
  if (timeline_) jobs::spec::ask_for_timelines(spec);
  if (!preparation_.empty() && !has_command_) spec.job_preparation_command_line = preparation_;
  if (!requirements_.empty()) {
    if (spec.container_settings) throw UsageError("--requirements is for jobs without containerSettings");
    spec.requirements = read_requirements(requirements_);
  }
  if (!logs_.empty()) spec.std_out_err_path_prefix = logs_;
  add_outputs(outputs_, spec);
  if (priority_ == "low") spec.scheduling_priority = jobs::spec::SchedulingPriority::kLow;
  if (priority_ == "normal") spec.scheduling_priority = jobs::spec::SchedulingPriority::kNormal;
  if (priority_ == "high") spec.scheduling_priority = jobs::spec::SchedulingPriority::kHigh;
  if (!time_limit_.empty()) {
    const auto limit = jobs::spec::parse_duration(time_limit_);
    if (!limit)
      throw UsageError(fmt::format("--time-limit is '{}', not a time such as 12:30:00 or PT12H", time_limit_));
    spec.max_wall_clock_time = *limit;
  }
  const auto forget = [&](const std::string& name) {
    std::erase_if(spec.environment_variables, [&](const auto& known) { return known.name == name; });
    std::erase_if(spec.secrets, [&](const auto& known) { return known.name == name; });
  };
  for (const std::string& variable : variables_) {
    const std::size_t equals = variable.find('=');
    if (equals == 0 || equals == std::string::npos) {
      throw UsageError(fmt::format("--env takes NAME=VALUE, not '{}'", variable));
    }
    forget(variable.substr(0, equals));
    spec.environment_variables.push_back({variable.substr(0, equals), variable.substr(equals + 1)});
  }
  for (const std::string& secret : secrets_) {
    const std::string value = variable_of(environment, secret);
    if (value.empty())
      throw UsageError(fmt::format("--secret {}: there is no such variable here, or it is empty", secret));
    forget(secret);
    spec.secrets.push_back({secret, {.text = value, .reference = {}}});
  }
}

std::string JobSubmit::cluster_of(Session& session, const JobSpec& spec, const std::string& workspace) const {
  if (!cluster_.empty()) return cluster_;
  if (!spec.cluster_id.empty()) return spec.cluster_id;
  std::vector<std::string> names;
  for (const Json& cluster : session.list({"workspaces", workspace, "clusters"})) {
    names.push_back(text_at(cluster, "/name"));
  }
  if (names.size() == 1) return names.front();
  if (names.empty()) {
    throw Error(ErrorCode::kNotFound, fmt::format("workspace '{}' has no cluster; make one with `gyre cluster create "
                                                  "NAME --target N`",
                                                  workspace));
  }
  throw UsageError(fmt::format("name a cluster with -c: {}", fmt::join(names, ", ")));
}

int JobSubmit::run(const std::vector<std::string>& environment) {
  std::optional<JobSpec> read = has_command_ ? spec_of_command() : spec_of_file(environment);
  if (!read) return kUnusableExitCode;
  JobSpec& spec = *read;
  apply_options(spec, environment);
  check_code(spec);
  check_name(name_, "--name");
  check_name(experiment_, "--experiment");
  if (!follow_) return submit(spec, environment);
  return with_a_jobs_exit_code("gyre job submit", [&] { return submit(spec, environment); });
}

int JobSubmit::submit(JobSpec& spec, const std::vector<std::string>& environment) const {
  JobConsole console("gyre job submit", remote_, environment, follow_ ? kPatience : std::chrono::milliseconds(0),
                     JobConsole::OnSignal::kLeaveTheJob);
  Session& session = console.session();
  const std::string& workspace = console.workspace();
  spec.cluster_id = cluster_of(session, spec, workspace);
  const std::string stem = has_command_   ? stem_of(command_)
                           : file_ == "-" ? "job"
                                          : std::filesystem::path(file_).stem().string();
  const JobName place{workspace, !experiment_.empty() ? experiment_ : experiment_of(spec),
                      name_.empty() ? new_job_name(stem) : name_};
  const Json job = console.submit(place, spec, code_);
  const std::string shown = shown_place(place);
  if (!follow_) {
    remote_.print(job, [&] { return shown + "\n"; });
    if (spec.node_count > 1) say_what_must_change(session, place, "gyre job submit");
    if (::isatty(STDERR_FILENO) != 0) {
      fmt::print(stderr, "\n  gyre job logs -f {0}   gyre job wait {0}   gyre job why {0}   gyre job stop {0}\n",
                 shown);
    }
    return 0;
  }
  fmt::print(stderr, "gyre job submit: submitted {}; Ctrl-C leaves it running\n", shown);
  return console.follow(place);
}

}  // namespace gyre::app
