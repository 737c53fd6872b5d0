#include "gyre/group/internal/launch.h"

#include <fmt/format.h>

#include <array>
#include <limits>
#include <vector>

#include "gyre/base/bytes.h"
#include "gyre/base/checksum.h"
#include "gyre/base/error.h"
#include "gyre/base/launch_contract.h"
#include "gyre/base/parse.h"
#include "gyre/group/internal/links/addresses.h"
#include "gyre/group/internal/rendezvous/membership_messages.h"

namespace gyre::group {
namespace {

// A rendezvous port of our own under Slurm, which has none to offer: below the kernel's usual range of ports that it
// hands out by itself, which starts at 32768.
constexpr std::uint64_t kFirstSlurmPort = 20'000;
constexpr std::uint64_t kSlurmPorts = 12'000;

std::string required(const Variables& variables, const char* name, std::string_view launcher) {
  if (auto value = variables(name)) return *value;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("{} is not set, though other variables say that {} started this process; unset those to run "
                          "alone, or start all ranks with one launcher",
                          name, launcher));
}

int number(const std::string& text, const char* name, int low, int high) {
  return static_cast<int>(parse_integer(text, name, low, high));
}

int required_number(const Variables& variables, const char* name, std::string_view launcher, int low, int high) {
  return number(required(variables, name, launcher), name, low, high);
}

std::optional<int> optional_number(const Variables& variables, const char* name, int low, int high) {
  const auto text = variables(name);
  return text ? std::optional(number(*text, name, low, high)) : std::nullopt;
}

void read_place(Launch& launch, const Variables& variables, const char* rank_name, const char* size_name) {
  launch.size = required_number(variables, size_name, launch.launcher, 1, kMostRanks);
  launch.rank = required_number(variables, rank_name, launch.launcher, 0, launch.size - 1);
}

Launch read_gyre(const Variables& variables) {
  Launch launch;
  launch.launcher = "gyre";
  read_place(launch, variables, launch_contract::kRank, launch_contract::kSize);
  if (const auto local_size = optional_number(variables, launch_contract::kLocalSize, 1, launch.size)) {
    optional_number(variables, launch_contract::kLocalRank, 0, *local_size - 1);
  }
  if (launch.size == 1) return launch;
  launch.rendezvous = net::parse_endpoint(required(variables, launch_contract::kRendezvous, launch.launcher));
  constexpr int kHighest = std::numeric_limits<int>::max();
  launch.ended_descriptor = optional_number(variables, launch_contract::kEndedDescriptor, 0, kHighest).value_or(-1);
  const int servers = optional_number(variables, launch_contract::kServers, 0, launch.size - 1).value_or(0);
  if (launch.rank == (servers > 0 ? launch.size - servers : 0)) {  // Who hosts the rendezvous: see Job::servers.
    launch.listener_descriptor =
        optional_number(variables, launch_contract::kRendezvousDescriptor, 0, kHighest).value_or(-1);
    launch.failure_descriptor =
        optional_number(variables, launch_contract::kFailureDescriptor, 0, kHighest).value_or(-1);
  }
  if (const auto file = variables(launch_contract::kKeyFile); file && !variables(launch_contract::kKeyDescriptor)) {
    launch.key_source = Launch::KeySource::kFile;
    launch.key_file = *file;
    launch.job_id = net::to_string(launch.rendezvous);
    return launch;
  }
  launch.key_source = Launch::KeySource::kDescriptor;
  launch.key_descriptor = required_number(variables, launch_contract::kKeyDescriptor, launch.launcher, 0, kHighest);
  return launch;
}

/// Foreign launchers: all ranks on one host.
void meet_on_this_host(Launch& launch, const Variables& variables, uid_t user) {
  const Sha256 hash = sha256(as_bytes(launch.job_id));
  launch.local_name = fmt::format("gyre-{}-", launch.launcher);
  for (std::size_t i = 0; i < 8; ++i) launch.local_name += fmt::format("{:02x}", std::to_integer<int>(hash[i]));
  launch.local_name += fmt::format("-{}-key", user);
  launch.key_source = Launch::KeySource::kLocalSocket;
  if (const auto file = variables(launch_contract::kKeyFile)) {
    launch.key_source = Launch::KeySource::kFile;
    launch.key_file = *file;
  }
}

/// Foreign launchers: several hosts, rank 0 listening at `rendezvous`.
void meet_over_network(Launch& launch, const Variables& variables, const net::Endpoint& rendezvous) {
  launch.rendezvous = rendezvous;
  const auto file = variables(launch_contract::kKeyFile);
  if (!file) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("GYRE_KEY_FILE is not set, and {} spread this job over several hosts without handing down "
                            "a key; make one in a directory that all hosts share (head -c 32 /dev/urandom > KEY; chmod "
                            "600 KEY) and set GYRE_KEY_FILE to it on all ranks, or start the job with gyre run",
                            launch.launcher));
  }
  launch.key_source = Launch::KeySource::kFile;
  launch.key_file = *file;
}

/// GYRE_RENDEZVOUS, or the port after torch's own at MASTER_ADDR, which torch's store occupies.
net::Endpoint network_rendezvous(const Launch& launch, const Variables& variables) {
  if (const auto chosen = variables(launch_contract::kRendezvous)) return net::parse_endpoint(*chosen);
  const auto host = variables("MASTER_ADDR");
  const auto port = optional_number(variables, "MASTER_PORT", 1, 65'534);
  if (!host || !port) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} is not set, and {} spread this job over several hosts; set MASTER_ADDR to rank 0's "
                            "host and MASTER_PORT to a free port there (its successor is used), or GYRE_RENDEZVOUS to "
                            "tcp:HOST:PORT, on all ranks",
                            host ? "MASTER_PORT" : "MASTER_ADDR", launch.launcher));
  }
  return {net::Endpoint::Kind::kTcp, *host, static_cast<std::uint16_t>(*port + 1)};
}

Launch read_open_mpi(const Variables& variables, uid_t user) {
  Launch launch;
  launch.launcher = "mpirun";
  read_place(launch, variables, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
  const int local_size = required_number(variables, "OMPI_COMM_WORLD_LOCAL_SIZE", launch.launcher, 1, launch.size);
  optional_number(variables, "OMPI_COMM_WORLD_LOCAL_RANK", 0, local_size - 1);
  if (launch.size == 1) return launch;
  launch.job_id = "mpirun " + required(variables, "PMIX_NAMESPACE", launch.launcher);
  if (local_size == launch.size) {
    meet_on_this_host(launch, variables, user);
  } else {
    meet_over_network(launch, variables, network_rendezvous(launch, variables));
  }
  return launch;
}

Launch read_torchrun(const Variables& variables, uid_t user) {
  Launch launch;
  launch.launcher = "torchrun";
  read_place(launch, variables, "RANK", "WORLD_SIZE");
  const auto local_size = optional_number(variables, "LOCAL_WORLD_SIZE", 1, launch.size);
  optional_number(variables, "LOCAL_RANK", 0, local_size.value_or(launch.size) - 1);
  if (launch.size == 1) return launch;
  // The run's name alone is "none" unless the user chose one; the port tells runs of one host apart.
  launch.job_id = fmt::format("torchrun {} {} {} {}", variables("TORCHELASTIC_RUN_ID").value_or("none"),
                              variables("MASTER_ADDR").value_or(""), variables("MASTER_PORT").value_or(""),
                              variables("TORCHELASTIC_RESTART_COUNT").value_or("0"));
  const bool one_host = local_size ? *local_size == launch.size : is_loopback(variables("MASTER_ADDR").value_or(""));
  if (one_host) {
    meet_on_this_host(launch, variables, user);
  } else {
    meet_over_network(launch, variables, network_rendezvous(launch, variables));
  }
  return launch;
}

Launch read_slurm(const Variables& variables, uid_t user) {
  Launch launch;
  launch.launcher = "srun";
  // The step's own size: SLURM_NTASKS may be the allocation's.
  const char* size_name = variables("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  read_place(launch, variables, "SLURM_PROCID", size_name);
  optional_number(variables, "SLURM_LOCALID", 0, launch.size - 1);
  if (launch.size == 1) return launch;
  launch.job_id = fmt::format("srun {} {} {}", required(variables, "SLURM_JOB_ID", launch.launcher),
                              required(variables, "SLURM_STEP_ID", launch.launcher),
                              variables("SLURM_RESTART_COUNT").value_or("0"));
  const char* hosts_name = variables("SLURM_STEP_NUM_NODES") ? "SLURM_STEP_NUM_NODES" : "SLURM_NNODES";
  if (required_number(variables, hosts_name, launch.launcher, 1, kMostRanks) == 1) {
    meet_on_this_host(launch, variables, user);
    return launch;
  }
  if (const auto chosen = variables(launch_contract::kRendezvous)) {
    meet_over_network(launch, variables, net::parse_endpoint(*chosen));
    return launch;
  }
  const auto port = kFirstSlurmPort + xxh3_64(as_bytes(launch.job_id)) % kSlurmPorts;
  meet_over_network(
      launch, variables,
      {net::Endpoint::Kind::kTcp, first_slurm_host(required(variables, "SLURM_STEP_NODELIST", launch.launcher)),
       static_cast<std::uint16_t>(port)});
  return launch;
}

/// A launcher that gives its ranks their numbers, and nothing by which they could find each other.
struct NumberingLauncher {
  const char* name;
  const char* rank;
  const char* size;
  const char* local_size;  ///< Ranks on this host; null: `hosts` says whether there are others.
  const char* hosts;       ///< Null: `local_size` does.
  const char* job;         ///< Equal for the ranks of a job, and no others at the same time; null: there is none.
};

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

/// Unknown counts as no.
bool is_on_one_host(const Launch& launch, const NumberingLauncher& names, const Variables& variables) {
  if (names.hosts != nullptr) return optional_number(variables, names.hosts, 1, kMostRanks).value_or(0) == 1;
  return optional_number(variables, names.local_size, 1, launch.size).value_or(0) == launch.size;
}

/// The launcher's process, where all ranks are on this host and the user has chosen no other way to meet; else empty.
std::string process_on_this_host(const Launch& launch, const NumberingLauncher& names, const Variables& variables,
                                 const LauncherProcess& launcher_process) {
  if (variables(launch_contract::kRendezvous) || !is_on_one_host(launch, names, variables)) return {};
  std::vector<std::string> entries;
  for (const char* name : {names.rank, names.size, "PMI_FD"}) {
    if (const auto value = variables(name)) entries.push_back(fmt::format("{}={}", name, *value));
  }
  return launcher_process(entries);
}

Launch read_numbering(const NumberingLauncher& names, const Variables& variables, uid_t user,
                      const LauncherProcess& launcher_process) {
  Launch launch;
  launch.launcher = names.name;
  read_place(launch, variables, names.rank, names.size);
  if (launch.size == 1) return launch;
  launch.job_id = launch.launcher;
  if (const auto job = names.job != nullptr ? variables(names.job) : std::nullopt) launch.job_id += " " + *job;
  if (const std::string process = process_on_this_host(launch, names, variables, launcher_process); !process.empty()) {
    launch.job_id += " " + process;
    meet_on_this_host(launch, variables, user);
  } else {
    meet_over_network(launch, variables, network_rendezvous(launch, variables));
    launch.job_id += " " + net::to_string(launch.rendezvous);
  }
  return launch;
}

/// Hydra inside an allocation starts its helpers, one on each host, as tasks of Slurm or Flux: the ranks inherit the
/// numbers of those, and there are at least as many of their own.
bool hydra_is_nearer(const Variables& variables, const char* outer_rank, const char* outer_size) {
  const auto rank = variables(kHydra.rank);
  const auto size = optional_number(variables, kHydra.size, 1, kMostRanks);
  if (!rank || !size) return false;
  const int outer = optional_number(variables, outer_size, 1, kMostRanks).value_or(1);
  return *size > outer || (*size == outer && rank != variables(outer_rank));
}

/// Nobody that we know started this process. A variable that all the same says that it is one of several: training
/// alone then would go unnoticed.
void refuse_to_be_one_of_several(const Variables& variables) {
  for (const char* size : {"PMI_SIZE", "MPI_LOCALNRANKS", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "WORLD_SIZE",
                           "HOROVOD_SIZE", "PMI_ID", "PMIX_RANK"}) {
    const auto value = variables(size);
    const bool is_a_size = std::string_view(size) != "PMI_ID" && std::string_view(size) != "PMIX_RANK";
    if (!value || (is_a_size && value == "1")) continue;
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("{} is '{}', so a launcher started this process as one of several, but its variables do not "
                    "say which of how many; start the ranks with gyre run, torchrun, mpirun, mpiexec or srun, or "
                    "set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT for each, or unset {} to run alone",
                    size, *value, size));
  }
}

}  // namespace

Launch read_launch(const Variables& variables, uid_t user, const LauncherProcess& launcher_process) {
  if (variables(launch_contract::kRank) || variables(launch_contract::kSize)) return read_gyre(variables);
  // Before mpirun, whose variables it sets too.
  if (variables(kJsrun.rank)) return read_numbering(kJsrun, variables, user, launcher_process);
  if (variables("OMPI_COMM_WORLD_RANK")) return read_open_mpi(variables, user);
  if (variables("RANK") && variables("WORLD_SIZE")) return read_torchrun(variables, user);
  // SLURM_PROCID alone is also set in a batch script and in an allocation's shell, where a plain process is one of
  // its own; only what srun starts belongs to a step.
  const char* step_size = variables("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  if (variables("SLURM_PROCID") && variables("SLURM_STEP_ID") && variables("SLURM_STEP_NODELIST") &&
      !hydra_is_nearer(variables, "SLURM_PROCID", step_size)) {
    return read_slurm(variables, user);
  }
  if (variables(kFlux.rank) && !hydra_is_nearer(variables, kFlux.rank, kFlux.size)) {
    return read_numbering(kFlux, variables, user, launcher_process);
  }
  for (const NumberingLauncher& launcher : kNumberingLaunchers) {
    if (variables(launcher.rank)) return read_numbering(launcher, variables, user, launcher_process);
  }
  refuse_to_be_one_of_several(variables);
  return {};
}

std::string first_slurm_host(std::string_view node_list) {
  std::string host;
  bool in_brackets = false;
  bool number_done = false;
  for (const char letter : node_list) {
    if (letter == '[' && !in_brackets) {
      in_brackets = true;
      number_done = false;
    } else if (letter == ']' && in_brackets) {
      in_brackets = false;
    } else if (in_brackets) {
      number_done = number_done || letter == ',' || letter == '-';
      if (!number_done) host += letter;
    } else if (letter == ',') {
      break;
    } else {
      host += letter;
    }
  }
  if (host.empty() || in_brackets) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("SLURM_STEP_NODELIST is '{}'; a list of hosts like node[01-03,7] is needed", node_list));
  }
  return host;
}

}  // namespace gyre::group
