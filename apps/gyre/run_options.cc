// The options of `gyre run`: its own, torchrun's and horovodrun's, and how words become options.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "apps/gyre/run_command.h"
#include "apps/gyre/suggest.h"

namespace gyre::app {

namespace {

constexpr const char* kExamples = R"(
COMMAND is started once for each rank. `--` may be left out when no option of `gyre run` follows it. With torchrun's
options COMMAND is a Python script, or with -m a module.

Examples:
  gyre run -n 4 -- python train.py --epochs 10
  gyre run -n 2 --log-dir logs --timeline trace.json -- ./my-program
  gyre run --nproc-per-node 4 train.py --epochs 10                      (as torchrun)
  gyre run --nnodes 2 --node-rank 0 --rdzv-endpoint node1:29500 --nproc-per-node 4 train.py
  gyre run -np 8 -H node1:4,node2:4 python train.py                     (as horovodrun, over ssh)

Exit code: 0 when every rank ended with 0; else that of the first rank that failed (128 + signal when one killed it);
130 after Ctrl-C, 143 after SIGTERM; 127 when COMMAND does not exist, 126 when it cannot be run; 2 for a wrong option;
255 when a host cannot be reached.)";

class RunHelp : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App*, std::string) const override {
    return "Usage: gyre run [OPTIONS] -- COMMAND [ARGUMENTS…]\n";
  }
};

bool takes_value(const CLI::Option& option) { return option.get_items_expected_max() > 0; }

std::vector<std::string> option_names(const CLI::App& verb) {
  std::vector<std::string> names;
  for (const CLI::Option* option : verb.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

/// "--log-dir" of "--log-dir=logs"; "-n" of "-n4".
std::string option_name(const std::string& word) {
  return word.starts_with("--") ? word.substr(0, word.find('=')) : word.substr(0, 2);
}

bool holds_value(const std::string& word) {
  return word.starts_with("--") ? word.find('=') != std::string::npos : word.size() > 2;
}

/// torchrun takes underscores in place of dashes, horovodrun has options of several letters behind one dash.
std::string our_spelling(const std::string& word) {
  if (word == "-np") return "-n";
  if (word == "-hostfile" || word == "-hosts") return "-" + word;
  if (!word.starts_with("--")) return word;
  std::string name = option_name(word);
  const std::string value = word.substr(name.size());
  std::replace(name.begin(), name.end(), '_', '-');
  return name + value;
}

}  // namespace

RunCommand::RunCommand(CLI::App& app) : verb_(app.add_subcommand("run", "Start the ranks of a job")) {
  verb_->formatter(std::make_shared<RunHelp>());
  add_own_options();
  add_torchrun_options();
  add_horovodrun_options();
  verb_->footer(kExamples);
}

void RunCommand::add_own_options() {
  verb_
      ->add_option(
          "-n,--ranks,--num-proc", ranks_,
          fmt::format("How many ranks, 1 to {} on a host; default 1, or all slots of -H", jobs::kMostRanksPerHost))
      ->type_name("N");
  verb_->add_option("--log-dir,--output-filename", log_dir_, "Keep each rank's output in DIR/rank-N.log")
      ->type_name("DIR");
  verb_
      ->add_option("--timeline,--timeline-filename", timeline_,
                   "Have rank 0 write a trace for chrome://tracing or Perfetto")
      ->type_name("FILE");
  verb_->add_option("--env", variables_, "Set a variable for the ranks; may be given several times")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false);
  verb_->add_option("--grace-seconds", grace_seconds_, "From the first Ctrl-C or SIGTERM until ranks are killed")
      ->type_name("S")
      ->capture_default_str();
  verb_->add_flag("-v,--verbose", verbosity_, "Say what is started; twice: the ranks log in detail");
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
  constexpr const char* kGroup = "As torchrun (also with underscores)";
  const auto add = [&](const char* name, std::string& value, const char* text, const char* type_name) {
    verb_->add_option(name, value, text)->type_name(type_name)->group(kGroup);
  };
  add("--nproc-per-node", ranks_per_node_, "How many ranks on this host; auto, cpu: one per core", "N");
  add("--nnodes", nodes_, "How many hosts; on each of them this command is started", "N");
  add("--node-rank", node_rank_, "Which of the hosts this is, from 0", "K");
  add("--rdzv-endpoint", rendezvous_endpoint_, "Host 0's address, port for torch's store; the next port is Gyre's",
      "HOST[:PORT]");
  add("--master-addr", master_address_, "The same, in two options", "HOST");
  add("--master-port", master_port_, "Default 29500 on several hosts, a free one on one", "PORT");
  add("--rdzv-id", run_id_, "TORCHELASTIC_RUN_ID of the ranks", "ID");
  add("--max-restarts", max_restarts_, "Start all ranks again after a failure, so often at most", "N");
  verb_->add_flag("--standalone", standalone_, "One host; the default")->group(kGroup);
  verb_->add_flag("-m,--module", module_, "COMMAND is a Python module")->group(kGroup);
  verb_->add_flag("--no-python", no_python_, "COMMAND is a program, not a Python script")->group(kGroup);
  // Accepted, because scripts give them: what they are about is always so here, or has no meaning.
  for (const char* name : {"-r,--redirects", "-t,--tee", "--rdzv-backend", "--rdzv-conf", "--monitor-interval",
                           "--start-method", "--role", "--local-addr", "--local-ranks-filter", "--logs-specs"}) {
    add_ignored(name, "VALUE");
  }
}

void RunCommand::add_horovodrun_options() {
  constexpr const char* kGroup = "As horovodrun";
  const auto add = [&](const char* name, std::string& value, const char* text, const char* type_name) {
    verb_->add_option(name, value, text)->type_name(type_name)->group(kGroup);
  };
  verb_
      ->add_flag("--horovod-compat", horovod_compat_,
                 "Let `import horovod.torch` find Gyre; a real Horovod that is installed wins")
      ->group(kGroup);
  add("-H,--hosts", hosts_, "Start the ranks on these hosts; others than this one through ssh", "HOST:SLOTS,…");
  add("--hostfile", host_file_, "The same from a file, a line `HOST slots=N` for each", "FILE");
  add("-p,--ssh-port", ssh_port_, "Of the ssh servers", "PORT");
  add("-i,--ssh-identity-file", ssh_identity_, "The key for ssh", "FILE");
  add("--ssh", ssh_, "The program, with options, that reaches a host", "COMMAND");
  add("--fusion-threshold-mb", fusion_megabytes_, "Largest bucket; 0 turns fusion off", "MB");
  add("--start-timeout", start_timeout_, "All ranks must have met by then", "S");
  add("--stall-check-warning-time-seconds", stall_warning_, "Report an operation that ranks wait for so long", "S");
  add("--stall-check-shutdown-time-seconds", stall_failure_, "End the job after so long", "S");
  add("--log-level", log_level_, "trace debug info warning error off", "LEVEL");
  verb_->add_flag("--no-stall-check", no_stall_check_, "Report no stalls")->group(kGroup);
  verb_->add_flag("--timeline-mark-cycles", mark_cycles_, "Mark each order in the timeline")->group(kGroup);
  for (const char* name :
       {"--cycle-time-ms", "--cache-capacity", "--network-interface,--network-interfaces", "--gloo-timeout-seconds",
        "--num-nccl-streams", "--thread-affinity", "--binding-args", "--mpi-args", "--autotune-log-file",
        "--autotune-warmup-samples", "--autotune-steps-per-sample", "--autotune-bayes-opt-max-samples",
        "--autotune-gaussian-process-noise"}) {
    add_ignored(name, "VALUE");
  }
  for (const char* name :
       {"--disable-cache", "--gloo", "--mpi", "--tcp", "--autotune", "--no-autotune", "--stall-check",
        "--no-timeline-mark-cycles", "--hierarchical-allreduce", "--no-hierarchical-allreduce",
        "--hierarchical-allgather", "--no-hierarchical-allgather", "--log-with-timestamp", "--log-without-timestamp",
        "--prefix-output-with-timestamp", "--mpi-threads-disable", "--no-mpi-threads-disable"}) {
    add_ignored(name, nullptr);
  }
}

std::vector<std::string> RunCommand::take_command(const std::vector<std::string>& arguments) {
  std::vector<std::string> options;
  std::size_t next = 0;
  while (next < arguments.size()) {
    const std::string word = our_spelling(arguments[next]);
    if (word == "--" || !word.starts_with('-') || word.size() == 1) break;
    const std::string name = option_name(word);
    const CLI::Option* option = verb_->get_option_no_throw(name);
    if (option == nullptr) {
      const auto meant = nearest(name, option_names(*verb_));
      throw UsageError(
          fmt::format("there is no option {}{}", name, meant ? fmt::format("; did you mean {}?", *meant) : ""));
    }
    const bool value_follows = takes_value(*option) && !holds_value(word);
    if (value_follows && next + 1 == arguments.size()) throw UsageError(fmt::format("{} needs a value", name));
    options.push_back(word);
    if (value_follows) options.push_back(arguments[next + 1]);
    next += value_follows ? 2 : 1;
  }
  command_.assign(arguments.begin() + static_cast<std::ptrdiff_t>(next), arguments.end());
  if (!command_.empty() && command_.front() == "--") command_.erase(command_.begin());
  return options;
}

}  // namespace gyre::app
