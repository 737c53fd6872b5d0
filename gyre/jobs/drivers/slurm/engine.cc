#include "gyre/jobs/drivers/slurm/engine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "gyre/base/process.h"
#include "gyre/base/secret_key.h"
#include "gyre/jobs/drivers/internal/service_place.h"
#include "gyre/jobs/drivers/slurm/internal/script.h"

namespace gyre::jobs::drivers::slurm {

namespace {

constexpr int kMostNodes = 4096;

/// What programs of a login need; nothing else of the service's environment gets into Slurm's records.
node::Variables for_slurm(const node::Variables& all) {
  constexpr std::array kNames = {"PATH",
                                 "HOME",
                                 "USER",
                                 "LOGNAME",
                                 "SHELL",
                                 "LANG",
                                 "TZ",
                                 "VIRTUAL_ENV",
                                 "SLURM_CONF",
                                 "LD_LIBRARY_PATH",
                                 "PYTHONPATH",
                                 "GYRE_CONTAINERS",
                                 "GYRE_BUILT_IMAGES",
                                 "GYRE_CONTAINER_PROGRAM",
                                 "DOCKER_HOST"};
  node::Variables some;
  for (const auto& [name, value] : all) {
    if (std::ranges::find(kNames, name) != kNames.end() || name.starts_with("LC_")) some[name] = value;
  }
  return some;
}

Holding::State state_of(const std::string& state) {
  using State = Holding::State;
  if (state == "PENDING") return State::kWaits;
  if (state == "RUNNING") return State::kRuns;
  if (!is_over(state)) return State::kChanges;
  return is_loss(state) || state == "COMPLETED" ? State::kLost : State::kCanceled;
}

Holding holding_of(const ListedJob& job) {
  Holding holding{.id = job.id, .name = job.name, .state = state_of(job.state), .text = job.state};
  if (holding.state == Holding::State::kWaits) holding.text = job.reason == "None" ? "" : job.reason;
  if (holding.state == Holding::State::kRuns) holding.text = job.nodes;
  holding.last_words = words_in(job.comment);
  holding.service = service_in(job.comment);
  return holding;
}

bool is_on_path(const std::string& program, const std::string& path) {
  try {
    return !find_command(program, path).empty();
  } catch (const SpawnError&) {
    return false;
  }
}

}  // namespace

SlurmEngine::SlurmEngine(const SlurmOptions& options)
    : options_(options), home_(options.folder, "slurm"), commands_(for_slurm(options.environment)) {}

std::string SlurmEngine::ask(const NodeRequest& request) {
  std::string key = hex_of(request.key);
  const WipedAtEnd wiped(key);
  write_text(batch_file(home_, request.order.attempt), batch_script(options_, request.service, request.order, key));
  return commands_.submit(sbatch_arguments(options_, home_, request.service, request.order));
}

std::vector<Holding> SlurmEngine::list() {
  std::vector<Holding> holdings;
  for (const ListedJob& job : commands_.list()) holdings.push_back(holding_of(job));
  return holdings;
}

Capacity SlurmEngine::capacity() const { return {.most_nodes = kMostNodes}; }

std::vector<Artifact> SlurmEngine::describe(const NodeRequest& request) const {
  std::string arguments = "sbatch";
  for (const std::string& argument : sbatch_arguments(options_, home_, request.service, request.order)) {
    arguments += " " + argument;
  }
  return {{"sbatch", arguments + "\n"},
          {"batch.sh", batch_script(options_, request.service, request.order, "(the attempt's key)")}};
}

std::vector<Missing> SlurmEngine::check() {
  const auto path = options_.environment.find("PATH");
  if (path == options_.environment.end()) return {};
  std::vector<std::string> missing;
  for (const char* program : {"sbatch", "squeue", "scancel"}) {
    if (!is_on_path(program, path->second)) missing.emplace_back(program);
  }
  if (missing.empty()) return {};
  return {{fmt::format("this host's PATH has no {}", fmt::join(missing, ", ")),
           "install Slurm's commands here (Debian: slurm-client), or start Gyre on a host that has them"}};
}

}  // namespace gyre::jobs::drivers::slurm
