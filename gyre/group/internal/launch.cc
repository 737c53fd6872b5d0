#include "gyre/group/internal/launch.h"

#include <fmt/format.h>

#include <limits>

#include "gyre/base/bytes.h"
#include "gyre/base/checksum.h"
#include "gyre/base/error.h"
#include "gyre/base/parse.h"
#include "gyre/group/internal/addresses.h"
#include "gyre/group/internal/membership_messages.h"

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
  read_place(launch, variables, "GYRE_RANK", "GYRE_SIZE");
  if (const auto local_size = optional_number(variables, "GYRE_LOCAL_SIZE", 1, launch.size)) {
    optional_number(variables, "GYRE_LOCAL_RANK", 0, *local_size - 1);
  }
  if (launch.size == 1) return launch;
  launch.rendezvous = net::parse_endpoint(required(variables, "GYRE_RENDEZVOUS", launch.launcher));
  constexpr int kHighest = std::numeric_limits<int>::max();
  launch.ended_descriptor = optional_number(variables, "GYRE_ENDED_FD", 0, kHighest).value_or(-1);
  if (launch.rank == 0) {
    launch.listener_descriptor = optional_number(variables, "GYRE_RENDEZVOUS_FD", 0, kHighest).value_or(-1);
    launch.verdict_descriptor = optional_number(variables, "GYRE_VERDICT_FD", 0, kHighest).value_or(-1);
  }
  if (const auto file = variables("GYRE_KEY_FILE"); file && !variables("GYRE_KEY_FD")) {
    launch.key_source = Launch::KeySource::kFile;
    launch.key_file = *file;
    launch.job_id = net::to_string(launch.rendezvous);
    return launch;
  }
  launch.key_source = Launch::KeySource::kDescriptor;
  launch.key_descriptor = required_number(variables, "GYRE_KEY_FD", launch.launcher, 0, kHighest);
  return launch;
}

/// Foreign launchers: all ranks on one host.
void meet_on_this_host(Launch& launch, const Variables& variables, uid_t user) {
  const Sha256 hash = sha256(as_bytes(launch.job_id));
  std::string name = fmt::format("@gyre-{}-", launch.launcher);
  for (std::size_t i = 0; i < 8; ++i) name += fmt::format("{:02x}", std::to_integer<int>(hash[i]));
  launch.rendezvous = {net::Endpoint::Kind::kUnix, fmt::format("{}-{}", name, user), 0};
  launch.key_source = Launch::KeySource::kLocalSocket;
  if (const auto file = variables("GYRE_KEY_FILE")) {
    launch.key_source = Launch::KeySource::kFile;
    launch.key_file = *file;
  }
}

/// Foreign launchers: several hosts, rank 0 listening at `rendezvous`.
void meet_over_network(Launch& launch, const Variables& variables, const net::Endpoint& rendezvous) {
  launch.rendezvous = rendezvous;
  const auto file = variables("GYRE_KEY_FILE");
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
  if (const auto chosen = variables("GYRE_RENDEZVOUS")) return net::parse_endpoint(*chosen);
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
  if (const auto chosen = variables("GYRE_RENDEZVOUS")) {
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

}  // namespace

Launch read_launch(const Variables& variables, uid_t user) {
  if (variables("GYRE_RANK") || variables("GYRE_SIZE")) return read_gyre(variables);
  if (variables("OMPI_COMM_WORLD_RANK")) return read_open_mpi(variables, user);
  if (variables("RANK") && variables("WORLD_SIZE")) return read_torchrun(variables, user);
  // SLURM_PROCID alone is also set in a batch script and in an allocation's shell, where a plain process is one of
  // its own; only what srun starts belongs to a step.
  if (variables("SLURM_PROCID") && variables("SLURM_STEP_ID") && variables("SLURM_STEP_NODELIST")) {
    return read_slurm(variables, user);
  }
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
