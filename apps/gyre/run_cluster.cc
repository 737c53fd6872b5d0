#include "apps/gyre/run_cluster.h"

#include <fmt/format.h>

#include <cstddef>
#include <utility>

#include "apps/gyre/job_console.h"
#include "apps/gyre/job_file.h"
#include "apps/gyre/job_place.h"
#include "gyre/base/error.h"
#include "gyre/cli/number_check.h"
#include "gyre/jobs/spec/command.h"
#include "gyre/jobs/spec/variable_references.h"

namespace gyre::app {

namespace {

/// For a job whose program gets each word as it is, as it would here.
std::vector<std::string> as_typed(std::vector<std::string> words) {
  constexpr std::size_t kLine = 2;
  const bool shell_line = jobs::spec::are_shell_line(words);
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (!shell_line || i != kLine) words[i] = jobs::spec::with_escaped_dollars(words[i]);
  }
  return words;
}

}  // namespace

void RunCluster::add_options(CLI::App& verb, const std::string& group) {
  const auto add = [&](const char* name, std::string& value, const char* text, const char* type_name) {
    return verb.add_option(name, value, text)->type_name(type_name)->group(group);
  };
  add("--cluster", cluster_, "Run the ranks as a job on this cluster of a job server, and show their output", "NAME");
  remote_.add_options(verb, Remote::kWorkspace);
  for (const char* name : {"--workspace", "--server", "--token-file"}) verb.get_option(name)->group(group);
  add("--code", code_,
      "The folder that each node gets a copy of; .gyreignore, or else .gitignore, excludes files (default: this one)",
      "DIR");
  add("--requirements", requirements_,
      "Have each node make a virtual environment of what this pip file names; it is kept for later jobs", "FILE");
  verb.add_option("--cpus-per-node", cpus_per_node_, "Cores that the job may use on each node (default: all)")
      ->type_name("N")
      ->check(cli::whole_number_from(1))
      ->group(group);
  add("--memory-per-node", memory_per_node_, "Memory that the job may use on each node: 512m, 16gb (default: all)",
      "SIZE");
  add("--job-name", name_, "The job's name (default: a new one, derived from the script)", "NAME");
  add_output_option(verb, outputs_);
  verb.get_option("--output")->group(group);
}

int RunCluster::run(const ClusterJob& job, const std::vector<std::string>& environment) const {
  if (job.ranks_per_node > jobs::spec::kMostProcessesPerNode) {
    throw UsageError(
        fmt::format("{} ranks on each node are more than the {} that a job may have there; give more "
                    "nodes (--nnodes)",
                    job.ranks_per_node, jobs::spec::kMostProcessesPerNode));
  }
  check_name(name_, "--job-name");
  return with_a_jobs_exit_code("gyre run", [&] { return run_job(job, environment); });
}

int RunCluster::run_job(const ClusterJob& job, const std::vector<std::string>& environment) const {
  jobs::spec::CommandJob command;
  command.program = as_typed(job.command);
  command.nodes = job.nodes;
  command.processes_per_node = job.ranks_per_node;
  command.restarts = job.restarts;
  command.servers = job.servers;
  for (const std::string& variable : job.variables) {
    const std::size_t equals = variable.find('=');
    command.environment.push_back(
        {variable.substr(0, equals), jobs::spec::with_escaped_dollars(variable.substr(equals + 1))});
  }
  if (!requirements_.empty()) command.requirements = read_requirements(requirements_);
  jobs::spec::JobSpec spec = jobs::spec::job_of_command(command);
  add_outputs(outputs_, spec);
  spec.cluster_id = cluster_;
  spec.cpus_per_node = cpus_per_node_;
  if (!memory_per_node_.empty()) spec.memory_per_node = memory_per_node_;
  JobConsole console("gyre run", remote_, environment, kPatience, JobConsole::OnSignal::kStopTheJob);
  const jobs::resources::JobName place{console.workspace(), kDefaultExperiment,
                                       name_.empty() ? new_job_name(stem_of(job.command)) : name_};
  // A server takes the same submission twice for one; here, the command is to run again.
  if (!name_.empty() && console.session().exists(jobs::client::path_of(place))) {
    throw UsageError(fmt::format("--job-name: there is a job {0} already; take another name, or `gyre job delete {0}`",
                                 shown_place(place)));
  }
  // Before all of the code is uploaded. One of another workspace is named by a path.
  if (cluster_.find('/') == std::string::npos) {
    static_cast<void>(console.session().get({"workspaces", console.workspace(), "clusters", cluster_}));
  }
  console.submit(place, spec, code_);
  fmt::print(stderr, "gyre run: submitted {} to cluster '{}'\n", shown_place(place), cluster_);
  return console.follow(place);
}

}  // namespace gyre::app
