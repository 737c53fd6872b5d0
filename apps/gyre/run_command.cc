#include "apps/gyre/run_command.h"

#include <fmt/format.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "apps/gyre/option_values.h"
#include "apps/gyre/parameter_server_command.h"
#include "apps/gyre/python_shims.h"
#include "gyre/base/cores.h"
#include "gyre/base/gpus.h"
#include "gyre/base/parse.h"
#include "gyre/base/process.h"
#include "gyre/base/rank_file.h"
#include "gyre/base/reach.h"
#include "gyre/cli/settings.h"
#include "gyre/group/job.h"
#include "gyre/metrics/job_file.h"
#include "gyre/net/network.h"

namespace gyre::app {

namespace {

using Json = nlohmann::json;

constexpr int kDefaultMasterPort = 29'500;
constexpr int kMostNodes = 4096;
/// In the environment of all that a job server's node starts.
constexpr const char* kJobNameVariable = "AZ_BATCHAI_JOB_NAME";
constexpr const char* kStartTimeout = "GYRE_START_TIMEOUT_SECONDS";
/// For ranks of several hosts, each of which brings a data set first.
constexpr int kStagingStartSeconds = 3600;

std::string advice_about(const Obstacle& obstacle, const std::filesystem::path& path, const UserId& own) {
  return fmt::format("; {}; put it where that user can reach it (jobs that root starts run as --job-user)",
                     explain(obstacle, path, user_name(own.user)));
}

/// Which way to the program, or to the interpreter that a script names, is closed to us.
std::string obstacle_hint(const std::string& file) {
  std::error_code failure;
  const std::filesystem::path program = std::filesystem::absolute(file, failure);
  if (failure) return {};
  const UserId own = own_user();
  if (const auto obstacle = obstacle_before(program, own); obstacle && obstacle->folder) {
    return advice_about(*obstacle, program, own);
  }
  std::string line;
  std::getline(std::ifstream(program), line);
  if (!line.starts_with("#!")) return {};
  const std::size_t begin = line.find_first_not_of(' ', 2);
  const std::string interpreter = begin == std::string::npos ? "" : line.substr(begin, line.find(' ', begin) - begin);
  if (!interpreter.starts_with('/')) return {};
  const auto obstacle = obstacle_before(interpreter, own);
  return obstacle ? advice_about(*obstacle, interpreter, own) : "";
}

/// Why we may not run a file that is there.
std::string permission_hint(const std::string& file) {
  if (std::string hint = obstacle_hint(file); !hint.empty()) return hint;
  struct statvfs file_system{};
  if (::statvfs(file.c_str(), &file_system) == 0 && (file_system.f_flag & ST_NOEXEC) != 0) {
    return fmt::format("; {} is on a file system from which no program may be started (mounted noexec)", file);
  }
  return fmt::format("; `chmod +x {}` makes a program executable", file);
}

/// Many nodes have Python by one of its names only.
std::string other_python(const std::string& command) {
  if (command != "python") return "";
  try {
    find_command("python3", environment_variable("PATH").value_or(""));
  } catch (const SpawnError&) {
    return "";
  }
  return "; it has `python3`";
}

std::string hint_for(const SpawnError& error) {
  if (error.errno_value() == EAGAIN) return "; the limit on processes is reached (`ulimit -u`, a container's limit)";
  if (error.errno_value() != ENOENT && error.errno_value() != EACCES && error.errno_value() != ENOEXEC) return {};
  const std::string& command = error.command();
  std::error_code failure;
  const bool here = command.find('/') == std::string::npos && std::filesystem::exists(command, failure);
  if (command.ends_with(".py") && (here || error.errno_value() != ENOENT)) {
    return fmt::format("; start a Python script as `python {}`", here ? command : error.file());
  }
  if (here && error.file() != "./" + command) {
    return fmt::format("; start the file of that name in this folder as `./{}`", command);
  }
  return error.errno_value() == EACCES && !error.file().empty() ? permission_hint(error.file()) : "";
}

/// From the folder in which this was started; that may be gone.
std::filesystem::path absolute(const std::string& path) {
  std::error_code failure;
  std::filesystem::path found = std::filesystem::absolute(path, failure);
  if (failure) throw system_error("the current folder cannot be used", failure.value());
  return found;
}

/// The path of this program.
std::string own_program() {
  std::error_code unknown;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", unknown);
  return unknown ? "gyre" : self.string();
}

void set_variable(std::vector<std::string>& environment, const std::string& entry) {
  const std::string_view name = std::string_view(entry).substr(0, entry.find('=') + 1);
  std::erase_if(environment, [&](const std::string& other) { return other.starts_with(name); });
  environment.push_back(entry);
}

}  // namespace

bool RunCommand::as_torchrun() const {
  const auto given = [&](const char* name) { return verb_->get_option(name)->count() > 0; };
  const bool on_cluster = parts_.cluster && parts_.cluster->is_wanted();
  // There, --nnodes is not torchrun's alone: with -n any program can be run.
  const bool by_nodes = given("--nnodes") && (!on_cluster || (ranks_.empty() && command_.front().ends_with(".py")));
  return given("--nproc-per-node") || by_nodes || given("--standalone") || given("--rdzv-endpoint") || module_ ||
         run_path_;
}

int RunCommand::rank_count() const {
  if (!ranks_.empty() && !ranks_per_node_.empty()) throw UsageError("give either -n or --nproc-per-node");
  if (ranks_per_node_ == "gpu") {
    const int gpus = count_gpus(environment_variable("CUDA_VISIBLE_DEVICES"));
    if (gpus > 0) return std::min(gpus, launch::kMostRanksPerHost);
    throw UsageError(
        "--nproc-per-node gpu: no NVIDIA GPU is visible here (/dev/nvidia0 and so on, CUDA_VISIBLE_DEVICES); give a "
        "number");
  }
  if (ranks_per_node_ == "auto" || ranks_per_node_ == "cpu") return usable_cores();
  if (!ranks_per_node_.empty()) {
    return static_cast<int>(parse_integer(ranks_per_node_, "--nproc-per-node", 1, launch::kMostRanksPerHost));
  }
  return ranks_.empty() ? 1 : static_cast<int>(parse_integer(ranks_, "-n", 1, launch::kMostRanksPerHost));
}

namespace {

/// Some systems have python3 only.
std::string python_in_path() {
  try {
    find_command("python", environment_variable("PATH").value_or(""));
    return "python";
  } catch (const SpawnError&) {
    return "python3";
  }
}

/// Of `python train.py`, which is not torchrun's way to name a script, but the one that other forms of `gyre run` want.
bool is_python(const std::string& program) {
  const std::string name = std::filesystem::path(program).filename();
  return name.starts_with("python") && name.find_first_not_of("0123456789.", 6) == std::string::npos;
}

}  // namespace

std::vector<std::string> RunCommand::full_command(const std::string& python) const {
  if (no_python_ && module_) throw UsageError("give either -m or --no-python");
  if (command_.front().empty()) throw UsageError("the command to run is empty");
  if ((no_python_ && !run_path_) || !as_torchrun()) return command_;
  if (!module_ && is_python(command_.front())) return command_;
  std::vector<std::string> command = {python, "-u"};
  if (module_) command.emplace_back("-m");
  command.insert(command.end(), command_.begin(), command_.end());
  return command;
}

std::vector<std::string> RunCommand::with_settings(std::vector<std::string> environment) const {
  constexpr int kMostSeconds = 24 * 3600;
  constexpr int kMostMegabytes = 1 << 20;
  const auto set_number = [&](const std::string& text, const char* option, const char* variable, int low, int high) {
    if (!text.empty()) {
      set_variable(environment, fmt::format("{}={}", variable, parse_integer(text, option, low, high)));
    }
  };
  if (!fusion_megabytes_.empty()) {
    const auto megabytes = parse_integer(fusion_megabytes_, "--fusion-threshold-mb", 0, kMostMegabytes);
    set_variable(environment, fmt::format("GYRE_FUSION_BYTES={}MB", megabytes));
  }
  set_number(start_timeout_, "--start-timeout", kStartTimeout, 1, kMostSeconds);
  set_number(stall_warning_, "--stall-check-warning-time-seconds", "GYRE_STALL_WARNING_SECONDS", 0, kMostSeconds);
  set_number(stall_failure_, "--stall-check-shutdown-time-seconds", "GYRE_STALL_FAILURE_SECONDS", 0, kMostSeconds);
  if (!interfaces_.empty()) set_variable(environment, fmt::format("GYRE_INTERFACES={}", interfaces_));
  if (plaintext_) set_variable(environment, "GYRE_TLS=0");
  if (!bind_.empty()) {
    net::parse_networks(bind_, "--bind");
    set_variable(environment, fmt::format("GYRE_BIND={}", bind_));
  }
  if (!allowed_.empty()) {
    net::parse_networks(allowed_, "--allow");
    set_variable(environment, fmt::format("GYRE_ALLOW={}", allowed_));
  }
  if (no_stall_check_) set_variable(environment, "GYRE_STALL_WARNING_SECONDS=0");
  if (mark_cycles_) set_variable(environment, "GYRE_TIMELINE_MARK_CYCLES=1");
  constexpr int kMostDevices = 1024;
  set_number(devices_per_rank_, "--devices-per-rank", "GYRE_DEVICES_PER_RANK", 1, kMostDevices);
  for (const std::string& variable : variables_) {
    const std::size_t equals = variable.find('=');
    if (equals == 0 || equals == std::string::npos) {
      throw UsageError(fmt::format("--env needs NAME=VALUE, not '{}'", variable));
    }
    set_variable(environment, variable);
  }
  return environment;
}

std::vector<std::string> RunCommand::full_environment(const std::vector<std::string>& inherited) const {
  std::vector<std::string> environment = with_settings(inherited);
  // In a job whose `gyre run` a job server writes, the variable is the only way to say it.
  const auto names_of_2018 = environment_variable("GYRE_KERAS_2018");
  const bool keras_2018 = keras_2018_ || (names_of_2018 && parse_bool(*names_of_2018, "GYRE_KERAS_2018"));
  if (horovod_compat_ || keras_2018) {
    environment = with_shim(std::move(environment), kHorovodShim, "--horovod-compat");
  }
  if (keras_2018) environment = with_shim(std::move(environment), kKeras2018Shim, "--keras-2018");
  return environment;
}

int RunCommand::node_count() const {
  const std::size_t colon = nodes_.find(':');
  const auto parse = [](const std::string& text) {
    return static_cast<int>(parse_integer(text, "--nnodes", 1, kMostNodes));
  };
  if (colon == std::string::npos) return parse(nodes_);
  const int fewest = parse(nodes_.substr(0, colon));
  if (fewest == parse(nodes_.substr(colon + 1))) return fewest;
  throw UsageError(fmt::format("--nnodes {}: elastic jobs are not supported; give a number of hosts", nodes_));
}

void RunCommand::set_part(launch::LaunchOptions& options) const {
  const int nodes = node_count();
  // On one host port 0 is torchrun's way to say: a free one.
  const int lowest_port = nodes == 1 ? 0 : 1;
  if (!master_address_.empty()) options.master_address = parse_host(master_address_, "--master-addr");
  if (!master_port_.empty()) {
    options.master_port = static_cast<int>(parse_integer(master_port_, "--master-port", lowest_port, 65'534));
  }
  Endpoint endpoint;
  if (!rendezvous_endpoint_.empty()) {
    endpoint = parse_host_and_port(rendezvous_endpoint_, "--rdzv-endpoint", lowest_port);
  }
  const int node = node_rank_.empty() ? 0 : static_cast<int>(parse_integer(node_rank_, "--node-rank", 0, nodes - 1));
  if (nodes == 1) return;
  if (standalone_) throw UsageError("--standalone is for one host; give either it or --nnodes");
  if (node_rank_.empty()) throw UsageError("--nnodes needs --node-rank, this host's number, from 0");
  const std::string host = endpoint.host.empty() && !master_address_.empty() ? options.master_address : endpoint.host;
  const int port = endpoint.port.value_or(options.master_port == 0 ? kDefaultMasterPort : options.master_port);
  if (host.empty()) throw UsageError("--nnodes needs --rdzv-endpoint HOST:PORT, or --master-addr: host 0's address");
  if (variable_of(options.environment, "GYRE_KEY_FILE").empty()) {
    throw UsageError(
        "--nnodes: the launchers of several hosts need a shared secret; make one that all hosts can read "
        "(head -c 32 /dev/urandom > KEY; chmod 600 KEY) and set GYRE_KEY_FILE to it, or let one launcher start all "
        "hosts (-H)");
  }
  static_cast<void>(group::secret_from_environment());  // Or its error, before the ranks wait for each other.
  launch::HostPart part;
  part.nodes = nodes;
  part.node = node;
  part.size = nodes * options.ranks;
  part.ranks.resize(static_cast<std::size_t>(options.ranks));
  std::iota(part.ranks.begin(), part.ranks.end(), part.node * options.ranks);
  part.rendezvous = "tcp:" + place_of(host, port + 1);
  options.part = part;
  options.master_address = host;
  options.master_port = port;
}

void RunCommand::set_servers(launch::LaunchOptions& options) const {
  if (!server_hosts_.empty() && !over_hosts()) throw UsageError("--server-hosts is for a job over several hosts (-H)");
  if (!server_hosts_.empty() && servers_.empty()) throw UsageError("--server-hosts needs --servers, their number");
  if (servers_.empty()) return;
  options.servers =
      static_cast<int>(parse_integer(servers_, "--servers", 0, launch::kMostRanksPerHost - options.ranks));
  if (options.servers == 0) return;
  if (as_torchrun()) throw UsageError("--servers is not for torchrun's options; give -n");
  options.ranks += options.servers;
}

std::vector<int> RunCommand::shown_streams(int ranks) const {
  constexpr int kBoth = 3;
  std::vector<int> shown(static_cast<std::size_t>(ranks), kBoth);
  const std::vector<int> redirected = parse_streams(redirects_.empty() ? "0" : redirects_, "--redirects", ranks);
  const std::vector<int> teed = parse_streams(tee_.empty() ? "0" : tee_, "--tee", ranks);
  const std::vector<bool> wanted = shown_ranks_.empty() ? std::vector<bool>(static_cast<std::size_t>(ranks), true)
                                                        : parse_ranks(shown_ranks_, "--local-ranks-filter", ranks);
  for (std::size_t rank = 0; rank < shown.size(); ++rank) {
    // What is kept nowhere else is shown.
    if (!log_dir_.empty()) shown[rank] &= ~redirected[rank] | teed[rank];
    if (!wanted[rank]) shown[rank] = 0;
  }
  return shown;
}

void RunCommand::set_output(launch::LaunchOptions& options) const {
  options.colour = !environment_variable("NO_COLOR") && environment_variable("TERM") != "dumb";
  if (!timeline_.empty()) options.timeline = is_traced_for_page() ? timeline_of_ranks() : absolute(timeline_).string();
  if (!metrics_file().empty()) options.metrics = absolute(metrics_file());
  if (!report_.empty() && absolute(report_).lexically_normal() == absolute(metrics_file()).lexically_normal()) {
    throw UsageError("--metrics and --report are the same file");
  }
  if (!log_dir_.empty()) options.log_dir = log_dir_;
  if (verbosity_ > 0) options.log_level = verbosity_ == 1 ? "info" : "debug";
  if (!log_level_.empty()) options.log_level = parse_log_level(log_level_, "--log-level");
  options.verbose = verbosity_ > 0;
}

int RunCommand::run(const std::vector<std::string>& environment) {
  constexpr int kLongestGraceSeconds = 86400;
  launch::LaunchOptions options;
  options.environment = full_environment(environment);
  const std::vector<std::string> server_command = {own_program(), ParameterServerCommand::kName};
  if (agent_) return start([&] { return launch::run_as_agent(options.environment, server_command); });
  if (command_.empty()) throw UsageError("no command to run, as in `gyre run -n 4 -- python train.py`");
  if (parts_.cluster && parts_.cluster->is_wanted()) return parts_.cluster->run(cluster_job(), environment);
  refuse_without_cluster();
  options.ranks = rank_count();
  for (const std::string& sentence : cli::unknown_settings(environment)) fmt::print(stderr, "gyre run: {}\n", sentence);
  options.command = full_command(environment_variable("GYRE_PYTHON").value_or(python_in_path()));
  options.server_command = server_command;
  options.grace = std::chrono::seconds(parse_integer(grace_seconds_, "--grace-seconds", 0, kLongestGraceSeconds));
  options.max_restarts = static_cast<int>(parse_integer(max_restarts_, "--max-restarts", 0, kMostRestarts));
  options.run_id = run_id_;
  options.role = role_;
  set_output(options);
  set_service_metrics(options);
  if (!ssh_port_.empty()) parse_integer(ssh_port_, "--ssh-port", 1, 65'535);
  if (!signals_.empty()) check_signals(signals_, "--signals-to-handle");
  set_servers(options);
  const bool stages = parts_.staging && parts_.staging->is_wanted();
  const bool has_page = parts_.page && parts_.page->is_wanted();
  if (over_hosts()) {
    if (stages) {
      throw UsageError(
          "--stage is for a command that is started on each host (--nnodes), not for -H; `gyre stage` can bring the "
          "data set to each host before");
    }
    launch::HostsOptions job = hosts_options(options, environment);
    if (has_page && options.timeline && !has_rank_mark(*options.timeline)) {
      fmt::print(stderr,
                 "gyre run: with -H the page has a timeline where --timeline names a file with {} in it, in a folder "
                 "that all hosts share\n",
                 kRankMark);
    }
    const auto ranks = [&] { return start([&] { return launch::run_on_hosts(job); }); };
    return has_page ? parts_.page->around(job.job, &job.log_copies, ranks) : ranks();
  }
  options.shown = shown_streams(options.ranks);
  set_part(options);
  set_input(options, options.part ? options.part->size : options.ranks);
  const auto ranks = [&] { return start([&] { return launch::run_on_console(options); }); };
  // The hosts are not ready at the same time.
  if (stages && options.part && variable_of(options.environment, kStartTimeout).empty()) {
    set_variable(options.environment, fmt::format("{}={}", kStartTimeout, kStagingStartSeconds));
  }
  const auto job = [&] { return stages ? parts_.staging->around(options, environment, ranks) : ranks(); };
  const int code = has_page ? parts_.page->around(options, nullptr, job) : job();
  name_timeline();
  return code;
}

void RunCommand::set_input(launch::LaunchOptions& options, int ranks) const {
  if (input_.empty()) return;
  options.stdin_rank = input_ == "none" ? -1 : static_cast<int>(parse_integer(input_, "--stdin", 0, ranks - 1));
}

bool RunCommand::is_traced_for_page() const {
  if (timeline_.empty()) return false;
  return has_rank_mark(timeline_) || (!over_hosts() && (!report_.empty() || (parts_.page && parts_.page->is_wanted())));
}

std::string RunCommand::timeline_of_ranks() const {
  const std::string file = absolute(timeline_);
  return has_rank_mark(file) ? file : fmt::format("{}.rank-{}", file, kRankMark);
}

void RunCommand::name_timeline() const {
  if (!is_traced_for_page() || has_rank_mark(timeline_)) return;
  std::error_code none;
  std::filesystem::rename(file_of_rank(timeline_of_ranks(), 0), absolute(timeline_), none);
}

std::string RunCommand::metrics_file() const {
  return metrics_.empty() && !report_.empty() ? report_ + ".metrics" : metrics_;
}

void RunCommand::set_service_metrics(launch::LaunchOptions& options) const {
  const auto order = metrics::parse_job_file_order(variable_of(options.environment, metrics::kJobFileVariable));
  std::erase_if(options.environment, [](const std::string& entry) {
    return entry.starts_with(std::string(metrics::kJobFileVariable) + "=");
  });
  if (!order || options.metrics) return;
  options.metrics = order->path;
  options.metrics_bytes = order->most_bytes;
  options.metrics_for_service = true;
}

void RunCommand::report() const {
  if (report_.empty()) return;
  try {
    parts_.write_report(metrics_file(), report_, is_traced_for_page() ? timeline_of_ranks() : "");
  } catch (const Error& error) {
    fmt::print(stderr, "gyre run: no report: {}\n", error.what());  // How the job ended is more important.
  }
}

int RunCommand::start(const std::function<launch::LaunchResult()>& job) const {
  try {
    const launch::LaunchResult result = job();
    report();
    if (!result_file_.empty()) {
      const Json first = result.first_failed_rank ? Json(*result.first_failed_rank) : Json(nullptr);
      std::ofstream(result_file_) << Json{{"exit_code", result.exit_code}, {"first_failed_rank", first}};
    }
    return result.exit_code;
  } catch (const SpawnError& error) {
    fmt::print(stderr, "gyre run: {}{}\n", error.what(), hint_for(error));
    const bool in_job = environment_variable(kJobNameVariable).has_value();
    if (in_job && error.errno_value() == ENOENT && error.command().find('/') == std::string::npos) {
      fmt::print(stderr,
                 "gyre run: that is the PATH of the job's node, {}; give a path that the node has, or "
                 "--env PATH=…, or have the program made there (--requirements FILE, --preparation LINE){}\n",
                 environment_variable("PATH").value_or("which is not set"), other_python(error.command()));
    }
    if (error.errno_value() == ENOENT) return 127;
    return error.errno_value() == EAGAIN ? 1 : 126;
  }
}

void RunCommand::refuse_beside_hosts() const {
  for (const char* option : {"--nnodes", "--nproc-per-node", "--node-rank", "--rdzv-endpoint", "--master-addr",
                             "--master-port", "--max-restarts", "--redirects", "--local-ranks-filter"}) {
    if (verb_->get_option(option)->count() == 0) continue;
    throw UsageError(fmt::format("give either -H or {}, which is for a command that is started on each host", option));
  }
}

std::vector<std::string> RunCommand::ssh_words() const {
  std::vector<std::string> words = launch::shell_words(ssh_, "--ssh");
  if (words.empty()) throw UsageError("--ssh does not name a program");
  if (!ssh_port_.empty()) words.insert(words.end(), {"-p", ssh_port_});
  if (!ssh_identity_.empty()) words.insert(words.end(), {"-i", ssh_identity_});
  return words;
}

launch::HostsOptions RunCommand::hosts_options(const launch::LaunchOptions& options,
                                               const std::vector<std::string>& environment) const {
  if (!hosts_.empty() && !host_file_.empty()) throw UsageError("give either -H or --hostfile");
  refuse_beside_hosts();
  if (!input_.empty()) throw UsageError("--stdin is for the ranks of this host; with -H every rank's stdin is empty");
  launch::HostsOptions job;
  job.hosts = launch::divide(host_file_.empty() ? launch::parse_hosts(hosts_) : launch::read_host_file(host_file_),
                             ranks_.empty() ? 0 : rank_count());
  job.hosts = launch::place_servers(
      std::move(job.hosts),
      server_hosts_.empty() ? std::vector<std::string>() : launch::parse_server_hosts(server_hosts_), options.servers);
  job.ssh = ssh_words();
  job.environment = environment;
  job.folder = absolute(".").parent_path().string();
  job.program = own_program();
  job.job = options;
  job.job.environment = launch::for_other_hosts(options.environment);
  for (const std::string& variable : variables_) set_variable(job.job.environment, variable);
  if (options.log_dir) job.job.log_dir = absolute(options.log_dir->string());
  return job;
}

}  // namespace gyre::app
