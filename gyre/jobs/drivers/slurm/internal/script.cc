#include "gyre/jobs/drivers/slurm/internal/script.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string_view>

#include "gyre/base/error.h"
#include "gyre/jobs/containers/container_runtime.h"
#include "gyre/jobs/drivers/internal/service_place.h"

namespace gyre::jobs::drivers::slurm {

namespace {

/// Of the whole allocation: beyond the job's own limit, which the node programs keep, for setup and for the node
/// programs to leave.
constexpr std::chrono::minutes kSlack{30};

/// A node whose job has ended, and whose service is not there to hear of it, waits for so long.
constexpr std::chrono::minutes kUntold{15};
static_assert(kUntold < kSlack);

constexpr std::string_view kComment = "gyre service ";
constexpr std::string_view kWords = "; ";
constexpr int kMostWords = 600;

/// As one word of a shell.
std::string quoted(const std::string& text) {
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

std::filesystem::path batch_file(const Home& home, const std::string& attempt) {
  return home.attempt(attempt) / "batch.sh";
}

std::string comment_of(const Service& service) {
  return fmt::format("{}{} at {}", kComment, service.name, net::to_string(service.place));
}

std::optional<Service> service_in(const std::string& comment) {
  constexpr std::string_view kAt = " at ";
  const std::string text = comment.substr(0, comment.find(kWords));
  const std::size_t at = text.find(kAt);
  if (!text.starts_with(kComment) || at == std::string::npos) return std::nullopt;
  try {
    return Service{.name = text.substr(kComment.size(), at - kComment.size()),
                   .place = net::parse_endpoint(text.substr(at + kAt.size()))};
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::string words_in(const std::string& comment) {
  const std::size_t at = comment.find(kWords);
  if (!comment.starts_with(kComment) || at == std::string::npos) return "";
  return comment.substr(at + kWords.size());
}

std::string batch_script(const SlurmOptions& options, const Service& service, const orders::WorkOrder& order,
                         const std::string& key) {
  std::string user;
  if (::geteuid() == 0) user = " --job-user " + quoted(options.job_user);
  // Each node gets its part, and with it the key, on stdin: others can see neither arguments nor environment of it.
  return fmt::format(R"sh(#!/bin/sh
#SBATCH --dependency=singleton
# Job {job}, attempt {attempt}: the job service's agent on each node. The service wrote this.
trap : TERM
umask 077
said=$(mktemp) && exec 3> "$said" 4< "$said" && rm "$said" || exit 1
# One question for all nodes, while srun goes to them: what Slurm knows as their addresses. Names are left to the agents.
addresses() {{
  scontrol --oneliner show node "$SLURM_JOB_NODELIST" 2> /dev/null |
    sed -n 's/^NodeName=\([A-Za-z0-9_.-]*\) .* NodeAddr=\([A-Za-z0-9_.:-]*\).*/[ "$SLURMD_NODENAME" != "\1" ] || address="\2"/p'
}}
program() {{
  cat <<'GYRE_NODE'
say() {{
  scontrol update JobId="$SLURM_JOB_ID" Comment={comment}{words}"$(echo "$1" | tr '|\n' '/ ')" 2> /dev/null
}}
if ! command -v {gyre} > /dev/null; then
  say "there is no {gyre} on $(hostname); install Gyre there, or name it with \"gyre\" in the cluster's driverOptions"
  exit 127
fi
mkdir -m 0755 {root} || exit 1
(umask 077; cat > {root}/agent.key) <<'GYRE_KEY' || exit 1
{key}
GYRE_KEY
umask 022
exec {gyre} agent --supervise --service {service} --key-file {root}/agent.key --node {attempt}-"$SLURM_PROCID" \
  --root {root} --address "$address" --give-up-seconds {give_up} --untold-seconds {untold}{user} < /dev/null
GYRE_NODE
}}
{{ echo address=; addresses; program; }} |
  srun --nodes={nodes} --ntasks={nodes} --ntasks-per-node=1 --kill-on-bad-exit=1 --cpu-bind=none --mpi=none \
    sh -s >&3 2>&3
code=$?
if [ $code != 0 ] && [ $code != 127 ]; then
  scontrol update JobId="$SLURM_JOB_ID" Comment={comment}{words}"$(tail -c {most_words} <&4 | tr '|\n' '/ ')"
fi 2> /dev/null
exit $code
)sh",
                     fmt::arg("job", first_line(order.job_name)), fmt::arg("attempt", order.attempt),
                     fmt::arg("nodes", order.nodes.size()), fmt::arg("gyre", quoted(options.gyre)),
                     fmt::arg("root", quoted(node_root(options, order.attempt))), fmt::arg("key", key),
                     fmt::arg("comment", quoted(comment_of(service))), fmt::arg("words", quoted(std::string(kWords))),
                     fmt::arg("service", quoted(net::to_string(service.place))),
                     fmt::arg("give_up", options.give_up.count()),
                     fmt::arg("untold", std::chrono::seconds(kUntold).count()), fmt::arg("most_words", kMostWords),
                     fmt::arg("user", user));
}

std::vector<std::string> sbatch_arguments(const SlurmOptions& options, const Home& home, const Service& service,
                                          const orders::WorkOrder& order) {
  const auto limit = order.job.max_wall_clock_time + kSlack;
  const auto minutes = std::chrono::ceil<std::chrono::minutes>(limit).count();
  std::vector<std::string> arguments = {"--job-name=" + request_name(order.attempt),
                                        "--comment=" + comment_of(service),
                                        fmt::format("--nodes={}", order.nodes.size()),
                                        fmt::format("--ntasks={}", order.nodes.size()),
                                        "--ntasks-per-node=1",
                                        "--exclusive",
                                        "--no-requeue",
                                        "--input=/dev/null",
                                        "--output=/dev/null",
                                        "--chdir=/"};
  const bool own_limit = options.sbatch.contains("time");
  if (!own_limit) arguments.push_back(fmt::format("--time={}", minutes));
  for (const auto& [name, value] : options.sbatch) arguments.push_back(fmt::format("--{}={}", name, value));
  // What a cluster asks for all of its jobs stands above; the two exclude each other.
  const int gpus = order.job.gpus_per_node.value_or(0);
  if (gpus > 0 && !options.sbatch.contains("gres")) arguments.push_back(fmt::format("--gres=gpu:{}", gpus));
  if (order.job.cpus_per_node && !options.sbatch.contains("mincpus")) {
    arguments.push_back(fmt::format("--mincpus={}", *order.job.cpus_per_node));
  }
  if (order.job.memory_per_node && !options.sbatch.contains("mem")) {
    const std::uint64_t bytes = containers::bytes_of_size(*order.job.memory_per_node);
    arguments.push_back(fmt::format("--mem={}K", std::max<std::uint64_t>(1, bytes >> 10)));
  }
  arguments.push_back(batch_file(home, order.attempt));
  return arguments;
}

}  // namespace gyre::jobs::drivers::slurm
