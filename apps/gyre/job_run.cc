#include "apps/gyre/job_run.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "apps/gyre/end_signals.h"
#include "apps/gyre/job_file.h"
#include "apps/gyre/job_user.h"
#include "apps/gyre/job_view.h"
#include "apps/gyre/mount_table.h"
#include "apps/gyre/program_start.h"
#include "apps/gyre/run_command.h"
#include "apps/gyre/service_folder.h"
#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/cli/table.h"
#include "gyre/jobs/client/code_archive.h"
#include "gyre/jobs/client/log_tail.h"
#include "gyre/jobs/node/container.h"
#include "gyre/jobs/node/mounts.h"
#include "gyre/jobs/resources/job_end.h"
#include "gyre/jobs/service/service.h"
#include "gyre/jobs/spec/parse.h"

namespace gyre::app {

namespace {

namespace fs = std::filesystem;
using jobs::resources::ExecutionState;

constexpr char kExplanation[] = R"(
Runs the job on virtual nodes of this machine, or on the nodes of --cluster, with a job service of its own that ends with
it. FILE is a job.json of Batch AI, as JSON or YAML; `-` is stdin. Logs are shown as they are written, and kept below
stdOutErrPathPrefix, outputs below their pathPrefix. The job's containerSettings are not used: it runs on the host.

--mount NAME=DIR makes the directory DIR stand in for the file share that the job expects as
$AZ_BATCHAI_MOUNT_ROOT/NAME. If started by root, the job runs as --job-user, which must be able to use DIR.

Ctrl-C terminates the job. Exit code: the job's; 125 if the job is not at fault; 2 if the file or an option is invalid.

Examples:
  gyre job run job.json --mount external=/data/share
  gyre job run job.yaml --name first-try --folder /scratch/gyre
  gyre job run job.json --code .
  gyre job run job.json --cluster slurm.json)";

constexpr int kUnusableExitCode = 2;
constexpr int kPollMs = 200;
const jobs::resources::ClusterName kCluster{"local", "this-machine"};
constexpr const char* kExperiment = "run";

/// Letters, digits, '-' and '_' of a file's name: what a job may be called.
std::string job_name_of(const std::string& file) {
  std::string name = file == "-" ? "job" : fs::path(file).stem().string();
  std::ranges::replace_if(name, [](unsigned char c) { return std::isalnum(c) == 0 && c != '-' && c != '_'; }, '-');
  return name.empty() ? "job" : name.substr(0, 64);
}

/// One job of a service in this process, from its submission to its end, on a console.
class Console {
 public:
  Console(jobs::service::Service& service, jobs::resources::JobName name, bool quiet, EndSignals& signals)
      : service_(service),
        name_(std::move(name)),
        quiet_(quiet),
        signals_(signals),
        view_(quiet ? cli::LiveOptions() : cli::live_options_from_environment(), "gyre job run",
              [this] {
                if (ended_by_signal(0)) throw Error(ErrorCode::kShutDown, "stdout has no room");
              }),
        logs_([this] { return log_folder(); }, [this] { return service_.files_are_complete(name_); }) {}

  jobs::resources::Job follow() {
    jobs::client::LogTail tail(logs_, {}, [this](auto stream, auto text) { show(stream, text); });
    view_.watch(name_.job, [this] { return glance(); });
    while (true) {
      say_news();
      const bool ended = tail.read_new();
      if (ended) break;
      view_.tick();
      ended_by_signal(kPollMs);
    }
    view_.end();
    say_news();
    return service_.job(name_);
  }

 private:
  void say(const std::string& sentence) { view_.say("gyre job run: " + sentence); }

  /// Whether a signal came, upon which the job ends.
  bool ended_by_signal(int longest_ms) {
    if (!signals_.wait(longest_ms)) return false;
    say("terminating the job");
    service_.terminate(name_);
    return true;
  }

  /// A stdout that fails costs the job nothing.
  void show(jobs::client::LogStream stream, std::string_view text) {
    if (is_cut_ && stream == jobs::client::LogStream::kOut) return;
    try {
      view_.show_log(stream, text);
    } catch (const Error& error) {
      is_cut_ = true;
      say(fmt::format("{}; the rest of the job's output is not shown", error.what()));
    }
  }

  void say_news() {
    for (const auto& event : service_.events({name_.workspace, "", name_.experiment, name_.job}, last_event_, 1'000)) {
      last_event_ = event.sequence;
      const auto sentence = jobs::client::sentence_about(event);
      if (quiet_ || !sentence) continue;
      // The block says how far the job has come; remarks stay.
      if (view_.draws() && !event.to.empty()) {
        news_ = *sentence;
      } else {
        say(*sentence);
      }
    }
  }

  /// Empty before its first attempt.
  fs::path log_folder() {
    for (const auto& directory : service_.output_directories(name_)) {
      if (directory.id == "stdouterr") return directory.root / directory.relative;
    }
    return {};
  }

  jobs::client::JobGlance glance() {
    const jobs::resources::Job job = service_.job(name_);
    jobs::client::JobGlance glance = jobs::client::glance_of(job, name_.job, wall_clock_us());
    const bool waits = job.execution_state == ExecutionState::kQueued;
    glance.detail = waits ? "waits: " + service_.why(name_).message : news_;
    for (const auto& node : service_.nodes(kCluster)) {
      if (!node.job) continue;
      glance.node_names.push_back(node.address.empty() ? node.name : fmt::format("{} ({})", node.name, node.address));
    }
    return glance;
  }

  jobs::service::Service& service_;
  const jobs::resources::JobName name_;
  const bool quiet_;
  EndSignals& signals_;
  JobView view_;
  bool is_cut_ = false;  // What stdout shows.
  jobs::client::FolderLogs logs_;
  std::string news_;  // What has happened last.
  std::int64_t last_event_ = 0;
};

/// As an upload would; returns its SHA-256.
std::string store_code(jobs::service::Service& service, const std::optional<jobs::client::CodeArchive>& code) {
  if (!code) return "";
  UniqueFd file(::memfd_create("code", MFD_CLOEXEC));
  if (!file) throw system_error("cannot keep the code in memory", errno);
  write_all(file.get(), as_bytes(code->bytes), "the archive of code");
  ::lseek(file.get(), 0, SEEK_SET);
  service.store_code({}, kCluster.workspace, code->sha256, std::move(file), code->bytes.size());
  return code->sha256;
}

/// Nodes go, so that no node program outlives the service.
void release_nodes(jobs::service::Service& service) {
  service.scale_cluster(kCluster, jobs::spec::ManualScale{0, jobs::spec::NodeDeallocationOption::kTerminate});
  const Deadline deadline = Deadline::after(std::chrono::seconds(10));
  while (service.cluster(kCluster).current_node_count > 0 && !deadline.passed()) ::poll(nullptr, 0, 10);
}

bool exists(const jobs::resources::OutputDirectory& directory) {
  std::error_code ignored;
  return fs::exists(directory.root / directory.relative, ignored);
}

int report(const jobs::resources::Job& job, const std::vector<jobs::resources::OutputDirectory>& directories) {
  for (const jobs::resources::OutputDirectory& directory : directories) {
    if (!exists(directory)) continue;  // No attempt came so far.
    fmt::print(stderr, "  {:12} {}\n", directory.id, (directory.root / directory.relative).string());
  }
  fmt::print(stderr, "gyre job run: {}\n", cli::printable(sentence_about_end(job)));
  return exit_code_of(job);
}

}  // namespace

JobRun::JobRun(CLI::App& group)
    : verb_(group.add_subcommand("run", "Run a job file on this machine, and show its logs")) {
  verb_->add_option("FILE", file_, "job.json, or a file of YAML; - is stdin")->required();
  verb_->add_option("--mount", mounts_, "Directory DIR for the job's mount NAME; repeatable")
      ->type_name("NAME=DIR")
      ->allow_extra_args(false);
  verb_
      ->add_option("--cluster", cluster_,
                   "cluster.json, whose driver provides the nodes (default: virtual nodes of this machine)")
      ->type_name("FILE");
  verb_
      ->add_option(
          "--code", code_,
          "Run the job in a copy of this folder on every node; .gyreignore, or else .gitignore, excludes files")
      ->type_name("DIR");
  add_output_option(*verb_, outputs_);
  verb_->add_option("--name", name_, "Name of the job (default: that of FILE)")->type_name("NAME");
  verb_->add_option("--folder", folder_, "Parent of the nodes' folders; kept (default: a new one, removed at the end)")
      ->type_name("DIR");
  verb_->add_option("--job-user", job_user_, "User to run the job as, if root starts it")
      ->type_name("USER")
      ->capture_default_str();
  verb_->add_flag("-q,--quiet", quiet_, "Show only the job's logs, not the service's progress");
  verb_->footer(kExplanation);
}

/// This machine's where no file is given; nothing, once it is said why, when the file is wrong.
std::optional<jobs::spec::ClusterSpec> JobRun::cluster_of_file(const std::vector<std::string>& environment) const {
  jobs::spec::ClusterSpec cluster;
  cluster.gyre.containers = jobs::spec::Containers::kHost;
  if (cluster_.empty()) return cluster;
  try {
    auto parsed = jobs::spec::parse_cluster(read_spec_file(cluster_), spec_file_options(cluster_, environment));
    for (const jobs::spec::Problem& problem : parsed.problems) {
      fmt::print(stderr, "{}\n", describe(problem, spec_file_name(cluster_)));
    }
    return parsed.spec;
  } catch (const Error& error) {
    fmt::print(stderr, "gyre job run: {}\n", error.what());
    return std::nullopt;
  }
}

int JobRun::run(const std::vector<std::string>& environment) const {
  keep_inherited_descriptors_here();
  jobs::spec::Parsed<jobs::spec::JobSpec> parsed;
  try {
    parsed = jobs::spec::parse_job(read_spec_file(file_), spec_file_options(file_, environment));
  } catch (const Error& error) {
    fmt::print(stderr, "gyre job run: {}\n", error.what());
    return kUnusableExitCode;
  }
  for (const jobs::spec::Problem& problem : parsed.problems) {
    fmt::print(stderr, "{}\n", describe(problem, spec_file_name(file_)));
  }
  if (!parsed.spec) return kUnusableExitCode;

  add_outputs(outputs_, *parsed.spec);
  auto read = cluster_of_file(environment);
  if (!read) return kUnusableExitCode;
  jobs::spec::ClusterSpec cluster = std::move(*read);
  cluster.scale_settings = jobs::spec::ManualScale{parsed.spec->node_count};
  for (const auto& [mount, directory] : mount_table(mounts_, MountCheck::kDirectory))
    cluster.gyre.mounts[mount] = directory;

  using jobs::spec::Containers;
  if (cluster.gyre.containers == Containers::kContainer) cluster.gyre.containers = Containers::kHost;
  if (const auto why = jobs::node::why_no_container(*parsed.spec, cluster)) {
    fmt::print(stderr, "gyre job run: the job cannot run on the cluster of {}: {}\n", cluster_, *why);
    return kUnusableExitCode;
  }
  try {
    jobs::node::check_mounts(*parsed.spec, cluster);
  } catch (const Error& error) {
    fmt::print(stderr, "gyre job run: {}\n", error.what());
    return kUnusableExitCode;
  }

  std::optional<jobs::client::CodeArchive> code;
  try {
    if (!code_.empty()) code = jobs::client::archive_code(code_);
  } catch (const Error& error) {
    fmt::print(stderr, "gyre job run: --code {}: {}\n", code_, error.what());
    return kUnusableExitCode;
  }

  EndSignals signals;  // Before the service's threads, so that none of them gets these signals.
  jobs::service::ServiceOptions options;
  ServiceFolder folder(folder_);
  options.folder = folder.path();
  options.gyre_program = fs::canonical("/proc/self/exe").string();
  check_job_user(job_user_);
  options.job_user = job_user_;
  options.environment = by_name(environment);
  const jobs::resources::JobName name{kCluster.workspace, kExperiment, name_.empty() ? job_name_of(file_) : name_};
  jobs::resources::Job job;
  std::vector<jobs::resources::OutputDirectory> directories;
  {
    jobs::service::Service service(options);
    service.create_workspace({"", true}, {kCluster.workspace, ""});
    service.create_experiment({kCluster.workspace, kExperiment});
    service.create_cluster(kCluster, cluster);
    service.submit(name, {*parsed.spec, kCluster, store_code(service, code)});
    job = Console(service, name, quiet_, signals).follow();
    directories = service.output_directories(name);
    release_nodes(service);
  }
  const bool inside = std::ranges::any_of(directories, [&](const jobs::resources::OutputDirectory& directory) {
    return exists(directory) && directory.root.string().starts_with(folder.path().string());
  });
  if (inside) folder.keep();
  return report(job, directories);
}

}  // namespace gyre::app
