#include "gyre/launch/internal/hosts/description.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/base/launch_contract.h"
#include "gyre/base/process.h"
#include "gyre/base/random.h"
#include "gyre/base/secret_key.h"
#include "gyre/launch/internal/hosts/byte_strings.h"
#include "gyre/launch/internal/rank_environment.h"
#include "gyre/launch/internal/shell_quoted.h"

namespace gyre::launch {

namespace {

using Json = nlohmann::json;

constexpr int kConnectSeconds = 6;

std::string name_without_user(const std::string& name) { return name.substr(name.rfind('@') + 1); }

/// This machine's address on the way to `host`. Nothing is sent.
std::optional<std::string> own_address_towards(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), "9", &hints, &found) != 0) return std::nullopt;
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  const UniqueFd probe(::socket(found->ai_family, found->ai_socktype | SOCK_CLOEXEC, found->ai_protocol));
  if (!probe || ::connect(probe.get(), found->ai_addr, found->ai_addrlen) != 0) return std::nullopt;
  sockaddr_storage own{};
  socklen_t length = sizeof own;
  std::array<char, NI_MAXHOST> text{};
  auto* const address = reinterpret_cast<sockaddr*>(&own);
  if (::getsockname(probe.get(), address, &length) != 0 ||
      ::getnameinfo(address, length, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0) {
    return std::nullopt;
  }
  return text.data();
}

/// Where the other hosts find this one of them.
std::string address_of(const Host& wanted, const std::vector<Host>& hosts) {
  const auto stranger = std::ranges::find_if(hosts, [](const Host& host) { return !host.is_here(); });
  if (!wanted.is_here() || stranger == hosts.end()) return name_without_user(wanted.name);
  return own_address_towards(name_without_user(stranger->name)).value_or(host_name());
}

/// The host whose rank listens: that of the first parameter server; without one, that of rank 0.
std::size_t rendezvous_host(const std::vector<Host>& hosts) {
  const auto runs_first_server = [](const Host& host) { return std::ranges::binary_search(host.servers, 0); };
  const auto found = std::ranges::find_if(hosts, runs_first_server);
  return found == hosts.end() ? 0 : static_cast<std::size_t>(found - hosts.begin());
}

}  // namespace

std::vector<std::string> agent_command(const HostsOptions& options, const Host& host) {
  if (host.is_here()) return {options.program, "run", "--agent"};
  std::vector<std::string> command = options.ssh;
  for (const std::string& word :
       {std::string("-T"), std::string("-o"), std::string("BatchMode=yes"), std::string("-o"),
        fmt::format("ConnectTimeout={}", kConnectSeconds), std::string("-o"), std::string("ServerAliveInterval=5"),
        std::string("-o"), std::string("ServerAliveCountMax=2")}) {
    command.push_back(word);
  }
  // The same place as here, if Gyre is installed there too; else whatever the login's PATH has.
  const std::string program = shell_quoted(options.program);
  const std::string script =
      fmt::format("if [ -x {} ]; then exec {} run --agent; else exec gyre run --agent; fi", program, program);
  command.push_back(host.name);
  command.push_back(fmt::format("exec sh -c {}", shell_quoted(script)));
  return command;
}

std::string explain_unreachable(const HostsOptions& options, const Host& host, const std::string& failure) {
  if (failure.find("Host key verification failed") == std::string::npos) return failure;
  std::vector<std::string> words = options.ssh;
  words.push_back(host.name);
  std::ranges::transform(words, words.begin(), [](const std::string& word) { return shell_quoted(word); });
  return fmt::format("{} (`{}`, once and by hand, makes it known)", failure, fmt::join(words, " "));
}

JobPlace make_job_place(const HostsOptions& options, const std::vector<RemoteAgent::Ports>& ports) {
  SecretKey key;
  fill_with_secure_random(key);
  const std::vector<Host>& hosts = options.hosts;
  const std::size_t listener = rendezvous_host(hosts);
  const std::string address = address_of(hosts[listener], hosts);
  const bool colons = address.find(':') != std::string::npos;
  return {.store_address = address_of(hosts.front(), hosts),
          .store_port = ports.front().store,
          .rendezvous =
              fmt::format("tcp:{}{}{}:{}", colons ? "[" : "", address, colons ? "]" : "", ports[listener].rendezvous),
          .key = key};
}

std::string describe(const HostsOptions& options, const JobPlace& place, std::size_t node) {
  const LaunchOptions& job = options.job;
  const std::vector<std::vector<int>> ranks = rank_numbers(options.hosts);
  std::size_t size = 0;
  for (const auto& of_host : ranks) size += of_host.size();
  const Json description = {{"command", job.command},
                            {"environment", job.environment},
                            {"ranks", ranks[node]},
                            {"servers", job.servers},
                            {"node", node},
                            {"nodes", options.hosts.size()},
                            {"size", size},
                            {"master_address", place.store_address},
                            {"master_port", place.store_port},
                            {"rendezvous", place.rendezvous},
                            {"key", hex_of(place.key)},
                            {"folder", options.folder},
                            {"job_folder", variable_of(options.environment, launch_contract::kJobFolder)},
                            {"grace_seconds", job.grace.count() / 1000},
                            {"metrics", job.metrics.has_value()},
                            {"logs", options.log_copies.has_value()},
                            {"timeline", job.timeline ? job.timeline->string() : ""},
                            {"log_dir", job.log_dir ? job.log_dir->string() : ""},
                            {"log_level", job.log_level.value_or("")},
                            {"run_id", job.run_id},
                            {"role", job.role},
                            {"verbose", job.verbose}};
  return with_bytes_as_characters(description).dump();
}

std::string own_folder(const std::string& folder, const std::string& job_folder, const std::string& own_job_folder) {
  if (job_folder.empty() || own_job_folder.empty()) return folder;
  const std::filesystem::path inside = std::filesystem::path(folder).lexically_relative(job_folder);
  if (inside.empty() || *inside.begin() == "..") return folder;
  return inside == "." ? own_job_folder : (std::filesystem::path(own_job_folder) / inside).string();
}

LaunchOptions read_description(const std::string& line, LaunchOptions job, std::string& folder) {
  try {
    const Json description = with_characters_as_bytes(Json::parse(line));
    const std::string own_job_folder = variable_of(job.environment, launch_contract::kJobFolder);
    job.command = description.at("command");
    for (const std::string entry : description.at("environment")) {
      const std::size_t equals = std::min(entry.find('='), entry.size());
      set_variable(job.environment, entry.substr(0, equals), entry.substr(std::min(equals + 1, entry.size())));
    }
    job.servers = description.at("servers");
    job.grace = std::chrono::seconds(description.at("grace_seconds").get<int>());
    job.master_address = description.at("master_address");
    job.master_port = description.at("master_port");
    job.verbose = description.at("verbose");
    job.run_id = description.at("run_id");
    job.role = description.at("role");
    if (const std::string file = description.at("timeline"); !file.empty()) job.timeline = file;
    job.forwards_metrics = description.at("metrics");
    job.forwards_logs = description.value("logs", false);
    if (const std::string logs = description.at("log_dir"); !logs.empty()) job.log_dir = logs;
    if (const std::string level = description.at("log_level"); !level.empty()) job.log_level = level;
    HostPart part;
    part.node = description.at("node");
    part.nodes = description.at("nodes");
    part.ranks = description.at("ranks").get<std::vector<int>>();
    part.size = description.at("size");
    part.rendezvous = description.at("rendezvous");
    part.key = key_from_hex(description.at("key").get_ref<const std::string&>());
    if (!part.key) throw Error(ErrorCode::kInvalidArgument, "the key in the job's description is not one");
    job.ranks = static_cast<int>(part.ranks.size());
    job.part = part;
    folder = own_folder(description.at("folder"), description.value("job_folder", ""), own_job_folder);
    return job;
  } catch (const Json::exception& error) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("--agent: the job's description on stdin makes no sense: {}", error.what()));
  }
}

std::vector<std::string> for_other_hosts(const std::vector<std::string>& environment) {
  constexpr std::array<std::string_view, 6> kNames = {"PATH", "VIRTUAL_ENV", "LD_LIBRARY_PATH",
                                                      "LANG", "TZ",          "NO_COLOR"};
  constexpr std::array<std::string_view, 9> kBeginnings = {"PYTHON", "LC_",   "OMP_",     "MKL_", "OPENBLAS_",
                                                           "GYRE_",  "TORCH", "HOROVOD_", "CUDA_"};
  // What a launcher above us has set for this process alone.
  constexpr std::array<std::string_view, 13> kOwn = {
      "GYRE_RANK",       "GYRE_SIZE",       "GYRE_LOCAL_",      "GYRE_RENDEZVOUS", "GYRE_KEY_FD",
      "GYRE_FAILURE_FD", "GYRE_ENDED_FD",   "GYRE_LAUNCH",      "GYRE_PROGRAM",    "GYRE_SERVERS",
      "GYRE_JOB_FOLDER", "GYRE_METRICS_FD", "GYRE_JOB_TIMELINE"};
  std::vector<std::string> chosen;
  std::ranges::copy_if(environment, std::back_inserter(chosen), [&](const std::string& entry) {
    const std::string_view name = std::string_view(entry).substr(0, entry.find('='));
    const auto begins = [name](std::string_view beginning) { return name.starts_with(beginning); };
    const bool wanted = std::ranges::find(kNames, name) != kNames.end() || std::ranges::any_of(kBeginnings, begins);
    return wanted && !std::ranges::any_of(kOwn, begins) && !name.starts_with("GYRE_KEY_") &&
           !name.starts_with("TORCHELASTIC_");
  });
  return chosen;
}

}  // namespace gyre::launch
