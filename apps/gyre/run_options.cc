// The options of `gyre run`: its own, torchrun's and horovodrun's, and how words become options.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <utility>

#include "apps/gyre/option_values.h"
#include "apps/gyre/run_command.h"
#include "gyre/base/parse.h"
#include "gyre/cli/option_table.h"
#include "gyre/cli/suggest.h"

namespace gyre::app {

namespace {

constexpr const char* kExamples = R"(
COMMAND is started once for each rank. `--` can be omitted if no option of `gyre run` follows it. With torchrun's
options COMMAND is a Python script, or with -m a module.

Examples:
  gyre run -n 4 -- python train.py --epochs 10
  gyre run -n 2 --log-dir logs --timeline trace.json -- ./my-program
  gyre run -n 4 --page -- python train.py                               (with a page of it for a browser)
  gyre run -n 4 --servers 2 -- gyre-cifar10 --data-dir digits           (with parameter servers)
  gyre run -n 4 --stage az://data/digits -- python train.py {stage-dir} (with a data set that is brought here first)
  gyre run --cluster pool --nnodes 2 -n 8 -- python train.py            (on a cluster of a job server)
  gyre run --nproc-per-node 4 train.py --epochs 10                      (as torchrun)
  gyre run --nnodes 2 --node-rank 0 --rdzv-endpoint node1:29500 --nproc-per-node 4 train.py
  gyre run -np 8 -H node1:4,node2:4 python train.py                     (as horovodrun, over ssh)
  gyre run -H node1:4,node2:4 --servers 2 -- gyre-cifar10 --data-dir digits     (a server on each host)
  gyre run -H node1:4,node2:4 --servers 2 --server-hosts node3,node4 -- gyre-cifar10 --data-dir digits

Exit code: 0 if every rank exited with 0; else that of the first rank that failed (128 + signal if one killed it);
130 after Ctrl-C, 143 after SIGTERM; 127 if COMMAND does not exist, 126 if it cannot be run; 2 for an invalid option;
255 if a host cannot be reached; with --cluster 125 if the job is not at fault, or could not be submitted.)";

constexpr const char* kClusterGroup = "On a cluster of a job server";
/// What ranks on a cluster can be told; `gyre job submit` has more for jobs.
constexpr std::array kForClusters = {"--ranks",
                                     "--nnodes",
                                     "--nproc-per-node",
                                     "--servers",
                                     "--env",
                                     "--max-restarts",
                                     "--module",
                                     "--no-python",
                                     "--standalone",
                                     "--keras-2018",
                                     "--fusion-threshold-mb",
                                     "--start-timeout",
                                     "--stall-check-warning-time-seconds",
                                     "--stall-check-shutdown-time-seconds",
                                     "--no-stall-check",
                                     "--network-interfaces",
                                     "--plaintext",
                                     "--bind",
                                     "--allow",
                                     "--timeline-mark-cycles",
                                     "--devices-per-rank"};

class RunHelp : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App*, std::string) const override {
    return "Usage: gyre run [OPTIONS] -- COMMAND [ARGUMENTS…]\n";
  }
};

bool takes_value(const CLI::Option& option) { return option.get_items_expected_max() > 0; }

/// "--log-dir" of "--log-dir=logs"; "-n" of "-n4".
std::string option_name(const std::string& word) {
  return word.starts_with("--") ? word.substr(0, word.find('=')) : word.substr(0, 2);
}

bool holds_value(const std::string& word) {
  return word.starts_with("--") ? word.find('=') != std::string::npos : word.size() > 2;
}

/// "logs" of "--log-dir=logs"; "4" of "-n4" and "-n=4".
std::string value_in(const std::string& word) {
  const std::string value = word.substr(option_name(word).size());
  return value.starts_with('=') ? value.substr(1) : value;
}

std::string unknown_option(const std::string& option, const std::vector<std::string>& known) {
  if (const auto reason = reason_for_refusal(option)) return fmt::format("{}: {}", option, *reason);
  return cli::no_such_option(option, known);
}

/// torchrun takes underscores in place of dashes, horovodrun has options of several letters behind one dash.
std::string our_spelling(const std::string& word) {
  if (word == "--np" || word.starts_with("--np=")) return "-n" + word.substr(4);
  if (word.starts_with("-np")) return "-n" + word.substr(3);
  if (word == "-hostfile" || word == "-hosts") return "-" + word;
  if (!word.starts_with("--")) return word;
  std::string name = option_name(word);
  const std::string value = word.substr(name.size());
  std::replace(name.begin(), name.end(), '_', '-');
  return name + value;
}

/// An empty word is most often a shell's variable that is not set. Of an option that is given again, the last counts.
CLI::Option* with_value(CLI::Option* option) {
  option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  return option->check(
      [](const std::string& value) { return std::string(value.empty() ? "an empty value was given" : ""); });
}

}  // namespace

RunCommand::RunCommand(CLI::App& app, Parts parts)
    : verb_(app.add_subcommand("run", "Start the ranks of a job")), parts_(std::move(parts)) {
  verb_->formatter(std::make_shared<RunHelp>());
  add_own_options();
  if (parts_.staging) parts_.staging->add_options(*verb_);
  if (parts_.cluster) parts_.cluster->add_options(*verb_, kClusterGroup);
  add_torchrun_options();
  add_horovodrun_options();
  verb_->footer(kExamples);
}

void RunCommand::add_own_options() {
  const auto add = [&](const char* names, std::string& value, const std::string& text, const char* type_name) {
    return with_value(verb_->add_option(names, value, text))->type_name(type_name);
  };
  add("-n,--ranks,--num-proc,--workers", ranks_,
      fmt::format("Number of ranks, 1 to {} on a host (with --cluster 1000); default 1, or all slots of -H",
                  launch::kMostRanksPerHost),
      "N");
  add("--servers", servers_,
      "Also start N parameter servers, through which the ranks exchange gradients; with -H, in turn on its hosts", "N");
  add("--server-hosts", server_hosts_,
      "Start the servers on these hosts instead, in turn; they need no slots, and can be hosts of -H", "HOST,…");
  add("--log-dir,--output-filename", log_dir_, "Keep each rank's output in DIR/rank-N.log", "DIR");
  add("--timeline,--timeline-filename", timeline_,
      "Have rank 0 write a trace for chrome://tracing or Perfetto; each rank with {rank} in the name, and for --page "
      "and --report, which show them",
      "FILE");
  add("--metrics", metrics_, "Keep in FILE what the ranks log (gyre.log), exchange and use; `gyre metrics` reads it",
      "FILE");
  if (parts_.write_report) {
    add("--report", report_,
        "Write a page with their charts when the job has ended; without --metrics, they are kept in FILE.metrics",
        "FILE");
  }
  if (parts_.page) parts_.page->add_options(*verb_);
  verb_->add_option("--env", variables_, "Set a variable for the ranks; repeatable")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false);
  verb_->add_flag("--plaintext", plaintext_, "Do not encrypt connections between hosts (GYRE_TLS=0)");
  add("--bind", bind_,
      "Accept other hosts' connections on this address, or on each host's address in this network (GYRE_BIND)",
      "ADDRESS");
  add("--allow", allowed_, "Accept connections only from these networks (GYRE_ALLOW)", "CIDR,…");
  add("--grace-seconds,--shutdown-timeout", grace_seconds_,
      "Time between the first Ctrl-C or SIGTERM and killing the ranks", "S")
      ->capture_default_str();
  add("--stdin", input_, "The rank that gets this command's stdin; default 0, on a terminal while it reads input",
      "RANK|none");
  add("--devices-per-rank", devices_per_rank_,
      "Show each rank only this many GPUs of its host, for programs that use the first they see; default: all of them",
      "K");
  verb_->add_flag("-v,--verbose", verbosity_,
                  "Show what is started, and every traceback; twice: the ranks log in detail");
  verb_->set_version_flag("--version", "gyre " GYRE_VERSION);
  // For gyre.run() in Python: gets how the job ended, as JSON.
  add("--result-file", result_file_, "", "FILE")->group("");
  verb_->add_flag("--agent", agent_)->group("");
}

void RunCommand::add_ignored(const std::string& names, const char* type_name) {
  if (type_name != nullptr) {
    verb_->add_option(names, ignored_)->type_name(type_name)->allow_extra_args(false)->group("");
  } else {
    verb_->add_flag(names, ignored_flag_)->group("");
  }
}

void RunCommand::add_torchrun_options() {
  constexpr const char* kGroup = "torchrun's options (also with underscores)";
  const auto add = [&](const char* name, std::string& value, const char* text, const char* type_name) {
    return with_value(verb_->add_option(name, value, text))->type_name(type_name)->group(kGroup);
  };
  add("--nproc-per-node", ranks_per_node_,
      "Number of ranks on this host; auto, cpu: one per core; gpu: one per NVIDIA GPU", "N");
  add("--nnodes", nodes_, "Number of hosts; start this command on each of them", "N");
  add("--node-rank", node_rank_, "This host's number, from 0", "K");
  add("--rdzv-endpoint", rendezvous_endpoint_,
      "Host 0's address, and the port for torch's store; the next port is Gyre's", "HOST[:PORT]");
  add("--master-addr", master_address_, "The same, as two options", "HOST");
  add("--master-port", master_port_, "Default: 29500 on several hosts, a free port on one", "PORT");
  add("--rdzv-id", run_id_, "TORCHELASTIC_RUN_ID of the ranks", "ID");
  add("--max-restarts", max_restarts_, "Restart all ranks after a failure, at most this often", "N");
  add("--role", role_, "ROLE_NAME of the ranks", "NAME");
  add("-r,--redirects", redirects_,
      "Write stdout (1), stderr (2) or both (3) only to --log-dir; by local rank: 0:1,1:2", "STREAMS");
  add("--local-ranks-filter", shown_ranks_, "Show only the output of these local ranks", "R,…");
  verb_->add_flag("--standalone", standalone_, "One host; the default")->group(kGroup);
  verb_->add_flag("-m,--module", module_, "COMMAND is a Python module")->group(kGroup);
  verb_->add_flag("--no-python", no_python_, "COMMAND is a program, not a Python script")->group(kGroup);
  verb_->add_flag("--run-path", run_path_)->group("");
  add("-t,--tee", tee_, "", "STREAMS")->group("");
  add("--signals-to-handle", signals_, "", "SIGNALS")->group("");
  // Accepted, because scripts give them: what they are about is always so here, or has no meaning.
  for (const char* name : {"--rdzv-backend", "--rdzv-conf", "--monitor-interval", "--start-method", "--local-addr",
                           "--logs-specs", "--event-log-handler", "--numa-binding"}) {
    add_ignored(name, "VALUE");
  }
}

void RunCommand::add_horovodrun_options() {
  constexpr const char* kGroup = "horovodrun's options";
  const auto add = [&](const char* name, std::string& value, const char* text, const char* type_name) {
    with_value(verb_->add_option(name, value, text))->type_name(type_name)->group(kGroup);
  };
  verb_
      ->add_flag("--horovod-compat", horovod_compat_,
                 "Let `import horovod.torch` find Gyre, and scripts for Horovod what Keras 3 no longer has of Keras 2; "
                 "an installed Horovod takes precedence")
      ->group(kGroup);
  verb_
      ->add_flag("--keras-2018", keras_2018_,
                 "Also give Keras and TensorFlow their names of 2018 (tf.ConfigProto, rmsprop(lr=, decay=), "
                 "fit_generator, val_acc); each one that is used is reported once (GYRE_KERAS_2018=1)")
      ->group(kGroup);
  add("-H,--hosts", hosts_, "Start the ranks on these hosts, over ssh on all but this one", "HOST:SLOTS,…");
  add("--hostfile", host_file_, "The same from a file, with a line `HOST slots=N` for each host", "FILE");
  add("-p,--ssh-port", ssh_port_, "Port of the ssh servers", "PORT");
  add("-i,--ssh-identity-file", ssh_identity_, "Key file for ssh", "FILE");
  add("--ssh", ssh_, "The program, with options, to use instead of ssh", "COMMAND");
  add("--network-interfaces,--network-interface", interfaces_,
      "Network interfaces for links between hosts (GYRE_INTERFACES)", "NAME,…");
  add("--fusion-threshold-mb", fusion_megabytes_, "Largest bucket; 0 turns fusion off", "MB");
  add("--start-timeout", start_timeout_, "Time limit for all ranks to join", "S");
  add("--stall-check-warning-time-seconds", stall_warning_, "Report an operation that ranks have waited this long for",
      "S");
  add("--stall-check-shutdown-time-seconds", stall_failure_, "End a stalled job after this long", "S");
  add("--log-level", log_level_, "trace debug info warning error off", "LEVEL");
  verb_->add_flag("--no-stall-check", no_stall_check_, "Do not report stalls")->group(kGroup);
  verb_
      ->add_flag("--timeline-mark-cycles", mark_cycles_, "Mark in the timeline when the ranks agree on what comes next")
      ->group(kGroup);
  for (const char* name :
       {"--cycle-time-ms", "--cache-capacity", "--gloo-timeout-seconds", "--num-nccl-streams", "--thread-affinity",
        "--binding-args", "--mpi-args", "--autotune-log-file", "--autotune-warmup-samples",
        "--autotune-steps-per-sample", "--autotune-bayes-opt-max-samples", "--autotune-gaussian-process-noise"}) {
    add_ignored(name, "VALUE");
  }
  for (const char* name :
       {"--disable-cache", "--gloo", "--mpi", "--tcp", "--autotune", "--no-autotune", "--stall-check",
        "--no-timeline-mark-cycles", "--hierarchical-allreduce", "--no-hierarchical-allreduce",
        "--hierarchical-allgather", "--no-hierarchical-allgather", "--torus-allreduce", "--no-torus-allreduce",
        "--log-with-timestamp", "--log-without-timestamp", "--prefix-output-with-timestamp", "--mpi-threads-disable",
        "--no-mpi-threads-disable"}) {
    add_ignored(name, nullptr);
  }
}

void RunCommand::refuse_without_cluster() const {
  for (const CLI::Option* option : verb_->get_options()) {
    if (option->get_group() != kClusterGroup || option->count() == 0) continue;
    if (option->get_name() == "--cluster") throw UsageError("--cluster: the cluster's name is empty");
    throw UsageError(fmt::format("{} is for --cluster", option->get_name()));
  }
}

ClusterJob RunCommand::cluster_job() const {
  for (const CLI::Option* option : verb_->get_options()) {
    const bool is_for_clusters = option->get_group() == kClusterGroup || option->get_group().empty() ||
                                 std::ranges::any_of(kForClusters, [&](auto name) { return option->check_name(name); });
    if (option->count() == 0 || is_for_clusters) continue;
    throw UsageError(
        fmt::format("{} is for ranks that this command starts itself, not for --cluster; see `gyre job "
                    "submit --help` for what a job can have",
                    option->get_name()));
  }
  if (!ranks_.empty() && !ranks_per_node_.empty()) throw UsageError("give either -n or --nproc-per-node");
  ClusterJob job;
  job.nodes = node_count();
  if (ranks_per_node_ == "auto" || ranks_per_node_ == "cpu" || ranks_per_node_ == "gpu") {
    throw UsageError(
        fmt::format("--nproc-per-node {}: with --cluster, give a number of ranks for each node", ranks_per_node_));
  }
  const int ranks =
      ranks_.empty()
          ? job.nodes
          : static_cast<int>(parse_integer(ranks_, "-n", 1, std::int64_t{launch::kMostRanksPerHost} * job.nodes));
  if (ranks % job.nodes != 0) {
    throw UsageError(fmt::format("-n {} cannot be divided evenly among the {} nodes of --nnodes", ranks, job.nodes));
  }
  job.ranks_per_node =
      ranks_per_node_.empty()
          ? ranks / job.nodes
          : static_cast<int>(parse_integer(ranks_per_node_, "--nproc-per-node", 1, launch::kMostRanksPerHost));
  if (!servers_.empty()) {
    job.servers = static_cast<int>(parse_integer(servers_, "--servers", 0, launch::kMostRanksPerHost));
  }
  job.restarts = static_cast<int>(parse_integer(max_restarts_, "--max-restarts", 0, kMostRestarts));
  job.command = full_command("python3");
  job.variables = with_settings({});
  if (keras_2018_) job.variables.emplace_back("GYRE_KERAS_2018=1");
  return job;
}

std::vector<std::string> RunCommand::take_command(const std::vector<std::string>& arguments) {
  std::vector<std::string> options;
  std::size_t next = 0;
  while (next < arguments.size()) {
    const std::string word = our_spelling(arguments[next]);
    if (word == "--" || !word.starts_with('-') || word.size() == 1) break;
    const std::string name = option_name(word);
    const CLI::Option* option = verb_->get_option_no_throw(name);
    if (option == nullptr)
      throw UsageError(unknown_option(word.starts_with("--") ? name : word, cli::option_names(*verb_)));
    const bool value_follows = takes_value(*option) && !holds_value(word);
    const bool is_last = next + 1 == arguments.size() || arguments[next + 1] == "--";
    if (value_follows && is_last) throw UsageError(fmt::format("{} needs a value", name));
    // Name and value apart, so that the value may be empty, or begin with a dash.
    if (takes_value(*option)) {
      options.push_back(name);
      options.push_back(value_follows ? arguments[next + 1] : value_in(word));
    } else {
      options.push_back(word);
    }
    next += value_follows ? 2 : 1;
  }
  command_.assign(arguments.begin() + static_cast<std::ptrdiff_t>(next), arguments.end());
  if (!command_.empty() && command_.front() == "--") command_.erase(command_.begin());
  return options;
}

}  // namespace gyre::app
