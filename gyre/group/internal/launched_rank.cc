#include "gyre/group/internal/launched_rank.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "gyre/base/error.h"
#include "gyre/base/launch_contract.h"
#include "gyre/base/parse.h"
#include "gyre/group/internal/rendezvous/membership_messages.h"

namespace gyre::group {
namespace {

using Kind = Launcher::Kind;

int number(const std::string& text, const char* name, int low, int high) {
  return static_cast<int>(parse_integer(text, name, low, high));
}

constexpr NumberingLauncher kFlux{"flux", "FLUX_TASK_RANK", "FLUX_JOB_SIZE", nullptr, "FLUX_JOB_NNODES", "FLUX_JOB_ID"};
constexpr NumberingLauncher kHydra{"hydra", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", nullptr, nullptr};
/// In the order in which they are looked for. Flux and Slurm may set PALS's variables too, and most set Hydra's.
constexpr std::array kNumberingLaunchers = {
    NumberingLauncher{"pals", "PALS_RANKID", "PMI_SIZE", "PALS_LOCAL_SIZE", nullptr, "PALS_APID"},
    NumberingLauncher{"mvapich", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE", nullptr,
                      nullptr},
    kHydra,
    NumberingLauncher{"horovodrun", "HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_SIZE", nullptr, nullptr},
};
constexpr NumberingLauncher kJsrun{
    "jsrun", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_LOCAL_SIZE", nullptr, nullptr};

/// Hydra inside an allocation starts its helpers, one on each host, as tasks of Slurm or Flux: the ranks inherit the
/// numbers of those, and there are at least as many of their own.
bool hydra_is_nearer(const Variables& variables, const char* outer_rank, const char* outer_size) {
  const auto rank = variables(kHydra.rank);
  const auto size = optional_number(variables, kHydra.size, 1, kMostRanks);
  if (!rank || !size) return false;
  const int outer = optional_number(variables, outer_size, 1, kMostRanks).value_or(1);
  return *size > outer || (*size == outer && rank != variables(outer_rank));
}

/// Whether `value` of the variable `name` says that there are several ranks. Programs set 0 and 1 for a single one.
bool shows_several(std::string_view name, std::string_view value) {
  if (name.ends_with("SIZE") || name == "MPI_LOCALNRANKS") return value != "1";
  return name == "PMI_ID" || name == "PMIX_RANK" || name == "RANK" || value != "0";
}

/// No known launcher started this process, but a variable may still say that it is one of several: training alone would
/// then go unnoticed. SLURM_NTASKS and a SLURM_PROCID of 0 say nothing: batch scripts have them too.
void refuse_to_be_one_of_several(const Variables& variables) {
  for (const char* name : {"PMI_SIZE",
                           "MPI_LOCALNRANKS",
                           "OMPI_COMM_WORLD_SIZE",
                           "OMPI_COMM_WORLD_LOCAL_SIZE",
                           "OMPI_COMM_WORLD_LOCAL_RANK",
                           "MV2_COMM_WORLD_SIZE",
                           "MV2_COMM_WORLD_LOCAL_SIZE",
                           "MV2_COMM_WORLD_LOCAL_RANK",
                           "WORLD_SIZE",
                           "LOCAL_WORLD_SIZE",
                           "LOCAL_RANK",
                           "HOROVOD_SIZE",
                           "HOROVOD_LOCAL_SIZE",
                           "HOROVOD_LOCAL_RANK",
                           "JSM_NAMESPACE_SIZE",
                           "JSM_NAMESPACE_LOCAL_SIZE",
                           "JSM_NAMESPACE_LOCAL_RANK",
                           "FLUX_JOB_SIZE",
                           "FLUX_TASK_LOCAL_ID",
                           "PALS_LOCAL_SIZE",
                           "PALS_LOCAL_RANKID",
                           "SLURM_PROCID",
                           launch_contract::kLocalSize,
                           launch_contract::kLocalRank,
                           "PMI_ID",
                           "PMIX_RANK",
                           "RANK"}) {
    const auto value = variables(name);
    if (!value || !shows_several(name, *value)) continue;
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("{} is '{}', so a launcher started this process as one of several, but its variables do not "
                    "say which of how many; start the ranks with gyre run, torchrun, mpirun, mpiexec or srun, or "
                    "set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT for each, or unset {} to run alone",
                    name, *value, name));
  }
}

/// Of a list; nothing where it is not a number of ranks.
std::optional<int> number_in(std::string_view text) {
  int value = 0;
  const auto [end, failure] = std::from_chars(text.begin(), text.end(), value);
  return failure == std::errc() && end == text.end() && value >= 1 && value <= kMostRanks ? std::optional(value)
                                                                                          : std::nullopt;
}

/// The step's own size: SLURM_NTASKS may be the allocation's.
const char* slurm_size(const Variables& variables) {
  return variables("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
}

/// Only what srun starts belongs to a step. A batch script and an allocation's shell have SLURM_PROCID too, where a
/// plain process is one of its own.
bool in_slurm_step(const Variables& variables) {
  if (variables("SLURM_PROCID") && variables("SLURM_STEP_ID") && variables("SLURM_STEP_NODELIST")) return true;
  // Of a step, but not complete; place_under_srun() and the meeting of its ranks name what is missing.
  return optional_number(variables, "SLURM_STEP_NUM_TASKS", 1, kMostRanks).value_or(1) > 1;
}

/// The launcher nearest to this process among all but torchrun, which may run under each of them.
Launcher find_outer(const Variables& variables) {
  if (variables(launch_contract::kRank) || variables(launch_contract::kSize)) return {Kind::kGyre};
  // Before mpirun, whose variables it sets too.
  if (variables(kJsrun.rank)) return {Kind::kNumbering, &kJsrun};
  if (variables("OMPI_COMM_WORLD_RANK")) return {Kind::kOpenMpi};
  if (in_slurm_step(variables) && !hydra_is_nearer(variables, "SLURM_PROCID", slurm_size(variables))) {
    return {Kind::kSlurm};
  }
  if (variables(kFlux.rank) && !hydra_is_nearer(variables, kFlux.rank, kFlux.size)) return {Kind::kNumbering, &kFlux};
  for (const NumberingLauncher& launcher : kNumberingLaunchers) {
    if (variables(launcher.rank)) return {Kind::kNumbering, &launcher};
  }
  return {};
}

/// The names of the variables in which `launcher` gives rank and size.
std::pair<const char*, const char*> names_of_place(const Launcher& launcher, const Variables& variables) {
  switch (launcher.kind) {
    case Kind::kGyre: return {launch_contract::kRank, launch_contract::kSize};
    case Kind::kOpenMpi: return {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"};
    case Kind::kSlurm: return {"SLURM_PROCID", slurm_size(variables)};
    case Kind::kNumbering: return {launcher.names->rank, launcher.names->size};
    default: return {"RANK", "WORLD_SIZE"};
  }
}

/// `gyre run` sets torchrun's variables for its ranks, but not this one, which torchrun sets too.
bool set_by_torchrun(const Launcher& outer, const Variables& variables) {
  return variables("TORCHELASTIC_ERROR_FILE") ||
         (outer.kind != Kind::kGyre && variables("TORCHELASTIC_RUN_ID").has_value());
}

/// Whether RANK and WORLD_SIZE, which are both set, describe this process, and not the variables of `outer`. They do if
/// torchrun set them, or if they count more ranks than `outer` started: those are in turn its ranks' children.
/// Error(kInvalidArgument) where the two contradict each other and nothing says which of them is right.
bool rank_and_world_size_are_nearer(const Launcher& outer, const Variables& variables) {
  if (outer.kind == Kind::kNone || set_by_torchrun(outer, variables)) return true;
  const auto [rank_name, size_name] = names_of_place(outer, variables);
  const auto rank = optional_number(variables, rank_name, 0, kMostRanks);
  auto size = optional_number(variables, size_name, 1, kMostRanks);
  if (!rank || !size) return false;  // place_of() names what is missing.
  if (outer.kind == Kind::kGyre)
    *size -= optional_number(variables, launch_contract::kServers, 0, *size - 1).value_or(0);
  const int own_rank = required_number(variables, "RANK", "torchrun", 0, kMostRanks);
  const int own_size = required_number(variables, "WORLD_SIZE", "torchrun", 1, kMostRanks);
  if (own_size > *size) return true;
  if (own_rank == *rank && own_size == *size) return false;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("RANK is {} with a WORLD_SIZE of {}, but {} is {} with a {} of {}, and both cannot describe "
                          "this process; unset RANK and WORLD_SIZE, or unset {} and {}",
                          own_rank, own_size, rank_name, *rank, size_name, *size, rank_name, size_name));
}

LaunchedPlace place_between(const Variables& variables, std::string_view launcher, const char* rank, const char* size) {
  LaunchedPlace place;
  place.launcher = launcher;
  place.size = required_number(variables, size, launcher, 1, kMostRanks);
  place.rank = required_number(variables, rank, launcher, 0, place.size - 1);
  return place;
}

LaunchedPlace place_under_gyre(const Variables& variables) {
  LaunchedPlace place = place_between(variables, "gyre", launch_contract::kRank, launch_contract::kSize);
  if (const auto local_size = optional_number(variables, launch_contract::kLocalSize, 1, place.size)) {
    optional_number(variables, launch_contract::kLocalRank, 0, *local_size - 1);
    place.local_size = *local_size;
  }
  return place;
}

LaunchedPlace place_under_torchrun(const Variables& variables) {
  LaunchedPlace place = place_between(variables, "torchrun", "RANK", "WORLD_SIZE");
  const auto local_size = optional_number(variables, "LOCAL_WORLD_SIZE", 1, place.size);
  optional_number(variables, "LOCAL_RANK", 0, local_size.value_or(place.size) - 1);
  place.local_size = local_size.value_or(0);
  return place;
}

LaunchedPlace place_under_mpirun(const Variables& variables) {
  LaunchedPlace place = place_between(variables, "mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
  place.local_size = required_number(variables, "OMPI_COMM_WORLD_LOCAL_SIZE", place.launcher, 1, place.size);
  optional_number(variables, "OMPI_COMM_WORLD_LOCAL_RANK", 0, place.local_size - 1);
  return place;
}

LaunchedPlace place_under_srun(const Variables& variables) {
  LaunchedPlace place = place_between(variables, "srun", "SLURM_PROCID", slurm_size(variables));
  optional_number(variables, "SLURM_LOCALID", 0, place.size - 1);
  const auto tasks = variables("SLURM_STEP_TASKS_PER_NODE");
  const auto node = optional_number(variables, "SLURM_NODEID", 0, kMostRanks);
  if (tasks && node) place.local_size = std::min(tasks_on_node(*tasks, *node), place.size);
  return place;
}

LaunchedPlace place_under(const NumberingLauncher& names, const Variables& variables) {
  LaunchedPlace place = place_between(variables, names.name, names.rank, names.size);
  if (names.local_size != nullptr) {
    place.local_size = optional_number(variables, names.local_size, 1, place.size).value_or(0);
  } else if (optional_number(variables, names.hosts, 1, kMostRanks).value_or(0) == 1) {
    place.local_size = place.size;
  }
  return place;
}

}  // namespace

std::string required(const Variables& variables, const char* name, std::string_view launcher) {
  if (auto value = variables(name)) return *value;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("{} is not set, though other variables say that {} started this process; unset those to run "
                          "alone, or start all ranks with one launcher",
                          name, launcher));
}

int required_number(const Variables& variables, const char* name, std::string_view launcher, int low, int high) {
  return number(required(variables, name, launcher), name, low, high);
}

std::optional<int> optional_number(const Variables& variables, const char* name, int low, int high) {
  const auto text = variables(name);
  return text ? std::optional(number(*text, name, low, high)) : std::nullopt;
}

Launcher find_launcher(const Variables& variables) {
  const Launcher outer = find_outer(variables);
  if (variables("RANK") && variables("WORLD_SIZE")) {
    return rank_and_world_size_are_nearer(outer, variables) ? Launcher{Kind::kTorchrun} : outer;
  }
  if (outer.kind == Kind::kNone) refuse_to_be_one_of_several(variables);
  return outer;
}

LaunchedPlace place_of(const Launcher& launcher, const Variables& variables) {
  switch (launcher.kind) {
    case Kind::kNone: return {};
    case Kind::kGyre: return place_under_gyre(variables);
    case Kind::kOpenMpi: return place_under_mpirun(variables);
    case Kind::kTorchrun: return place_under_torchrun(variables);
    case Kind::kSlurm: return place_under_srun(variables);
    case Kind::kNumbering: return place_under(*launcher.names, variables);
  }
  return {};
}

int tasks_on_node(std::string_view tasks_per_node, int node) {
  int begin = 0;
  while (!tasks_per_node.empty()) {
    const auto comma = std::min(tasks_per_node.find(','), tasks_per_node.size());
    const std::string_view entry = tasks_per_node.substr(0, comma);
    tasks_per_node.remove_prefix(std::min(comma + 1, tasks_per_node.size()));
    const auto bracket = std::min(entry.find('('), entry.size());
    const auto tasks = number_in(entry.substr(0, bracket));
    const bool repeated = entry.substr(bracket).starts_with("(x") && entry.ends_with(')');
    if (!tasks || (bracket < entry.size() && !repeated)) return 0;
    const auto nodes = repeated ? number_in(entry.substr(bracket + 2, entry.size() - bracket - 3)) : std::optional(1);
    if (!nodes) return 0;
    begin += *nodes;
    if (node < begin) return *tasks;
  }
  return 0;
}

}  // namespace gyre::group
