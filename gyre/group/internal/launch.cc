#include "gyre/group/internal/launch.h"

#include <fmt/format.h>

#include <limits>
#include <utility>
#include <vector>

#include "gyre/base/bytes.h"
#include "gyre/base/checksum.h"
#include "gyre/base/error.h"
#include "gyre/base/launch_contract.h"
#include "gyre/group/internal/links/addresses.h"
#include "gyre/group/internal/rendezvous/membership_messages.h"

namespace gyre::group {
namespace {

// A rendezvous port of our own under Slurm, which has none to offer: below the kernel's usual range of ports that it
// hands out by itself, which starts at 32768.
constexpr std::uint64_t kFirstSlurmPort = 20'000;
constexpr std::uint64_t kSlurmPorts = 12'000;
constexpr int kHighestPort = 65'535;

Launch read_gyre(Launch launch, const Variables& variables) {
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

/// A name at which the ranks of a job meet on their host, to exchange `what`.
std::string meeting_name(std::string_view launcher, const std::string& job_id, uid_t user, std::string_view what) {
  const Sha256 hash = sha256(as_bytes(job_id));
  std::string name = fmt::format("gyre-{}-", launcher);
  for (std::size_t i = 0; i < 8; ++i) name += fmt::format("{:02x}", std::to_integer<int>(hash[i]));
  return name + fmt::format("-{}-{}", user, what);
}

/// Foreign launchers: all ranks on one host.
void meet_on_this_host(Launch& launch, const Variables& variables, uid_t user) {
  launch.local_name = meeting_name(launch.launcher, launch.job_id, user, "key");
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
net::Endpoint network_rendezvous(std::string_view launcher, const Variables& variables) {
  // Under a torchrun that `gyre run` started, it is where the ranks of `gyre run` meet.
  const bool is_own = launcher != "torchrun" || !variables(launch_contract::kRank);
  if (const auto chosen = variables(launch_contract::kRendezvous); chosen && is_own) {
    return net::parse_endpoint(*chosen);
  }
  const auto host = variables("MASTER_ADDR");
  const auto port = optional_number(variables, "MASTER_PORT", 1, 65'534);
  if (!host || !port) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} is not set, and {} spread this job over several hosts; set MASTER_ADDR to rank 0's "
                            "host and MASTER_PORT to a free port there (its successor is used), or GYRE_RENDEZVOUS to "
                            "tcp:HOST:PORT, on all ranks",
                            host ? "MASTER_PORT" : "MASTER_ADDR", launcher));
  }
  return {net::Endpoint::Kind::kTcp, *host, static_cast<std::uint16_t>(*port + 1)};
}

/// How the ranks of a foreign launcher can find each other.
struct Meeting {
  std::string job_id;         ///< Equal for the ranks of a job, and for no others at the same time.
  bool on_this_host = false;  ///< They are all here, and `job_id` is enough.
  std::string first_host{};   ///< Else: rank 0's, where the launcher says so.
};

Meeting meeting_of_mpirun(const LaunchedPlace& place, const Variables& variables) {
  return {.job_id = "mpirun " + required(variables, "PMIX_NAMESPACE", place.launcher),
          .on_this_host = place.local_size == place.size};
}

Meeting meeting_of_torchrun(const LaunchedPlace& place, const Variables& variables) {
  // The run's name alone is "none" unless the user chose one; the port tells runs of one host apart.
  const auto port = optional_number(variables, "MASTER_PORT", 1, kHighestPort);
  return {.job_id = fmt::format("torchrun {} {} {} {}", variables("TORCHELASTIC_RUN_ID").value_or("none"),
                                variables("MASTER_ADDR").value_or(""), port.value_or(0),
                                variables("TORCHELASTIC_RESTART_COUNT").value_or("0")),
          .on_this_host = place.local_size > 0 ? place.local_size == place.size
                                               : is_loopback(variables("MASTER_ADDR").value_or(""))};
}

Meeting meeting_of_srun(const LaunchedPlace& place, const Variables& variables) {
  Meeting meeting;
  meeting.job_id =
      fmt::format("srun {} {} {}", required(variables, "SLURM_JOB_ID", place.launcher),
                  required(variables, "SLURM_STEP_ID", place.launcher), variables("SLURM_RESTART_COUNT").value_or("0"));
  const char* hosts_name = variables("SLURM_STEP_NUM_NODES") ? "SLURM_STEP_NUM_NODES" : "SLURM_NNODES";
  meeting.on_this_host = required_number(variables, hosts_name, place.launcher, 1, kMostRanks) == 1;
  if (!meeting.on_this_host) {
    meeting.first_host = first_slurm_host(required(variables, "SLURM_STEP_NODELIST", place.launcher));
  }
  return meeting;
}

/// The launcher's process, where all ranks are on this host and the user has chosen no other way to meet; else empty.
std::string process_on_this_host(const LaunchedPlace& place, const NumberingLauncher& names, const Variables& variables,
                                 const LauncherProcess& launcher_process) {
  if (variables(launch_contract::kRendezvous) || place.local_size != place.size) return {};
  std::vector<std::string> entries;
  for (const char* name : {names.rank, names.size, "PMI_FD"}) {
    if (const auto value = variables(name)) entries.push_back(fmt::format("{}={}", name, *value));
  }
  return launcher_process(entries);
}

Meeting meeting_of(const LaunchedPlace& place, const NumberingLauncher& names, const Variables& variables,
                   const LauncherProcess& launcher_process) {
  Meeting meeting{.job_id = place.launcher};
  if (const auto job = names.job != nullptr ? variables(names.job) : std::nullopt) meeting.job_id += " " + *job;
  const std::string process = process_on_this_host(place, names, variables, launcher_process);
  meeting.on_this_host = !process.empty();
  if (meeting.on_this_host) meeting.job_id += " " + process;
  return meeting;
}

Meeting meeting_of(const Launcher& launcher, const LaunchedPlace& place, const Variables& variables,
                   const LauncherProcess& launcher_process) {
  switch (launcher.kind) {
    case Launcher::Kind::kOpenMpi: return meeting_of_mpirun(place, variables);
    case Launcher::Kind::kTorchrun: return meeting_of_torchrun(place, variables);
    case Launcher::Kind::kSlurm: return meeting_of_srun(place, variables);
    case Launcher::Kind::kNumbering: return meeting_of(place, *launcher.names, variables, launcher_process);
    default: return {};
  }
}

std::uint64_t slurm_hash(const std::string& text) { return xxh3_64(as_bytes(text)); }

std::uint16_t slurm_port(const std::string& job_id) {
  return static_cast<std::uint16_t>(kFirstSlurmPort + slurm_hash(job_id) % kSlurmPorts);
}

/// For torch's store: any other one of these ports than slurm_port().
std::uint16_t slurm_store_port(const std::string& job_id) {
  const std::uint64_t further = 1 + slurm_hash(job_id + " torch's store") % (kSlurmPorts - 1);
  return static_cast<std::uint16_t>(kFirstSlurmPort + (slurm_hash(job_id) + further) % kSlurmPorts);
}

/// MASTER_ADDR and MASTER_PORT, where the user has set them.
std::optional<StorePlace> chosen_store(const Variables& variables) {
  const auto host = variables("MASTER_ADDR");
  const auto port = optional_number(variables, "MASTER_PORT", 1, kHighestPort);
  if (!host && !port) return std::nullopt;
  if (!host || !port) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} is set, but {} is not, and torch's store needs both; set {} on all ranks, or unset {} "
                            "to let Gyre choose both",
                            host ? "MASTER_ADDR" : "MASTER_PORT", host ? "MASTER_PORT" : "MASTER_ADDR",
                            host ? "MASTER_PORT to a port that is free there" : "MASTER_ADDR to rank 0's host",
                            host ? "MASTER_ADDR" : "MASTER_PORT"));
  }
  return StorePlace{*host, static_cast<std::uint16_t>(*port), ""};
}

}  // namespace

Launch read_launch(const Variables& variables, uid_t user, const LauncherProcess& launcher_process) {
  const Launcher launcher = find_launcher(variables);
  const LaunchedPlace place = place_of(launcher, variables);
  Launch launch;
  launch.launcher = place.launcher;
  launch.rank = place.rank;
  launch.size = place.size;
  if (launch.size == 1) return launch;
  if (launcher.kind == Launcher::Kind::kGyre) return read_gyre(std::move(launch), variables);
  const Meeting meeting = meeting_of(launcher, place, variables, launcher_process);
  launch.job_id = meeting.job_id;
  if (meeting.on_this_host) {
    meet_on_this_host(launch, variables, user);
  } else if (!meeting.first_host.empty() && !variables(launch_contract::kRendezvous)) {
    meet_over_network(launch, variables, {net::Endpoint::Kind::kTcp, meeting.first_host, slurm_port(launch.job_id)});
  } else {
    meet_over_network(launch, variables, network_rendezvous(launch.launcher, variables));
    if (launcher.kind == Launcher::Kind::kNumbering) launch.job_id += " " + net::to_string(launch.rendezvous);
  }
  return launch;
}

StorePlace read_store_place(const Variables& variables, uid_t user, const LauncherProcess& launcher_process) {
  const Launcher launcher = find_launcher(variables);
  const LaunchedPlace place = place_of(launcher, variables);
  if (const auto chosen = chosen_store(variables)) return *chosen;
  StorePlace store;
  const Meeting meeting = meeting_of(launcher, place, variables, launcher_process);
  if (meeting.on_this_host) {
    store.meeting_name = meeting_name(place.launcher, meeting.job_id, user, "store");
  } else if (!meeting.first_host.empty() && !variables(launch_contract::kRendezvous)) {
    store.host = meeting.first_host;
    store.port = slurm_store_port(meeting.job_id);
  } else {
    const net::Endpoint rendezvous = network_rendezvous(place.launcher, variables);
    if (rendezvous.kind != net::Endpoint::Kind::kTcp || rendezvous.port < 2) {
      throw Error(
          ErrorCode::kInvalidArgument,
          fmt::format("GYRE_RENDEZVOUS is {}; tcp:HOST:PORT with a port from 2 is needed, because torch's store "
                      "uses the one before it",
                      net::to_string(rendezvous)));
    }
    store.host = rendezvous.host;
    store.port = static_cast<std::uint16_t>(rendezvous.port - 1);
  }
  return store;
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
