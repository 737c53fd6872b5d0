#include "gyre/jobs/drivers/slurm/internal/script.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

namespace gyre::jobs::drivers::slurm {

namespace {

/// Of the whole allocation: beyond the job's own limit, which the node programs keep, for setup and for the node
/// programs to leave.
constexpr std::chrono::minutes kSlack{30};

/// As one word of a shell.
std::string quoted(const std::string& text) {
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

std::string registered_name(const std::string& attempt, int node) { return fmt::format("{}-{}", attempt, node); }

std::filesystem::path node_root(const SlurmOptions& options, const std::string& attempt) {
  return options.node_folder / ("gyre-" + attempt);
}

std::string job_name(const std::string& attempt) { return "gyre-" + attempt; }

std::string batch_script(const Home& home, const orders::WorkOrder& order) {
  const std::size_t nodes = order.nodes.size();
  return fmt::format(R"(#!/bin/sh
# Job {job}, attempt {attempt}: the job service's agent on each node. The service wrote this.
folder={folder}
if ! mkdir "$folder/started" 2> /dev/null; then
  echo "attempt {attempt} was started before"
  exit 0
fi
echo "$SLURM_JOB_ID" > "$folder/started/job.new" && mv "$folder/started/job.new" "$folder/started/job" || exit 1
exec srun --nodes={nodes} --ntasks={nodes} --ntasks-per-node=1 --kill-on-bad-exit=1 --cpu-bind=none --mpi=none \
  --input=none sh {script}
)",
                     fmt::arg("job", first_line(order.job_name)), fmt::arg("attempt", order.attempt),
                     fmt::arg("folder", quoted(home.attempt(order.attempt))), fmt::arg("nodes", nodes),
                     fmt::arg("script", quoted(home.node_script(order.attempt))));
}

std::string node_script(const SlurmOptions& options, const Home& home, const orders::WorkOrder& order) {
  std::string user;
  if (::geteuid() == 0) user = " --job-user " + quoted(options.job_user);
  return fmt::format(R"(# On each node of attempt {attempt}.
if ! command -v {gyre} > /dev/null; then
  # Into the job's output, because srun may drop what a task has just written when it ends the others.
  echo "there is no {gyre} on $(hostname); install Gyre there, or name it with \"gyre\" in the cluster's driverOptions" \
    >> {output}
  exit 127
fi
# What Slurm knows as the node's address; a name is left to the agent.
address=$(scontrol --oneliner show node "$SLURMD_NODENAME" 2> /dev/null | sed -n 's/.* NodeAddr=\([^ ]*\).*/\1/p')
mkdir -m 0755 {root} || exit 1
exec {gyre} agent --supervise --service {service} --key-file {key} --node {attempt}-"$SLURM_PROCID" \
  --root {root} --records {records} --address "$address" --give-up-seconds {give_up}{user}
)",
                     fmt::arg("attempt", order.attempt), fmt::arg("gyre", quoted(options.gyre)),
                     fmt::arg("output", quoted(home.output(order.attempt).string())),
                     fmt::arg("root", quoted(node_root(options, order.attempt))),
                     fmt::arg("service", quoted("file:" + home.service().string())),
                     fmt::arg("key", quoted(home.key())), fmt::arg("records", quoted(home.records(order.attempt))),
                     fmt::arg("give_up", options.give_up.count()), fmt::arg("user", user));
}

std::vector<std::string> sbatch_arguments(const SlurmOptions& options, const Home& home,
                                          const orders::WorkOrder& order) {
  const auto limit = order.job.max_wall_clock_time + kSlack;
  const auto minutes = std::chrono::ceil<std::chrono::minutes>(limit).count();
  std::vector<std::string> arguments = {"--job-name=" + job_name(order.attempt),
                                        fmt::format("--nodes={}", order.nodes.size()),
                                        fmt::format("--ntasks={}", order.nodes.size()),
                                        "--ntasks-per-node=1",
                                        "--exclusive",
                                        "--no-requeue",
                                        "--open-mode=append",
                                        "--input=/dev/null",
                                        "--output=" + home.output(order.attempt).string(),
                                        "--chdir=" + home.attempt(order.attempt).string()};
  const bool own_limit = options.sbatch.contains("time");
  if (!own_limit) arguments.push_back(fmt::format("--time={}", minutes));
  for (const auto& [name, value] : options.sbatch) arguments.push_back(fmt::format("--{}={}", name, value));
  // What a cluster asks for all of its jobs stands above; the two exclude each other.
  const int gpus = order.job.gpus_per_node.value_or(0);
  if (gpus > 0 && !options.sbatch.contains("gres")) arguments.push_back(fmt::format("--gres=gpu:{}", gpus));
  arguments.push_back(home.batch_script(order.attempt));
  return arguments;
}

}  // namespace gyre::jobs::drivers::slurm
