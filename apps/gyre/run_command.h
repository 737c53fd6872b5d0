#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "apps/gyre/usage_error.h"
#include "gyre/launch/console.h"
#include "gyre/launch/hosts.h"

namespace gyre::app {

/// How `gyre run` brings a data set to this host before it starts the ranks: RunStaging. An interface, because that
/// needs the libraries of gyre/store, and the launcher of ./dev demo does without (docs/adr/0116).
class JobStaging {
 public:
  virtual ~JobStaging() = default;

  virtual void add_options(CLI::App& verb) = 0;
  /// After the options were parsed. UsageError for options that do not fit together.
  virtual bool is_wanted() const = 0;
  /// Changes what the ranks are given, runs `job`, and returns its exit code, or another if it could not begin.
  /// `environment`: the launcher's. UsageError, gyre::Error.
  virtual int around(launch::LaunchOptions& options, const std::vector<std::string>& environment,
                     const std::function<int()>& job) const = 0;
};

/// The page that `gyre run --page` serves while the job runs: RunPage. An interface, because that needs gyre/page, and
/// the launcher of ./dev demo does without.
class JobPage {
 public:
  virtual ~JobPage() = default;

  virtual void add_options(CLI::App& verb) = 0;
  /// After the options were parsed. UsageError for options that do not fit together.
  virtual bool is_wanted() const = 0;
  /// Has the launcher report to the page, runs `job`, and returns its exit code. `log_copies`: of a job over several
  /// hosts (HostsOptions::log_copies); null: its logs are here. UsageError, gyre::Error.
  virtual int around(launch::LaunchOptions& options, std::optional<std::filesystem::path>* log_copies,
                     const std::function<int()>& job) const = 0;
};

/// A job as `gyre run --cluster` describes it.
struct ClusterJob {
  std::vector<std::string> command{};
  int nodes = 1;
  int ranks_per_node = 1;
  int servers = 0;
  int restarts = 0;
  std::vector<std::string> variables{};  ///< NAME=VALUE, for the ranks.
};

/// The cluster of a job server on which `gyre run --cluster` runs its job: RunCluster. An interface, because that needs
/// the client of the job service, and the launcher of ./dev demo does without.
class JobCluster {
 public:
  virtual ~JobCluster() = default;

  virtual void add_options(CLI::App& verb, const std::string& group) = 0;
  /// After the options were parsed.
  virtual bool is_wanted() const = 0;
  /// Runs the job to its end, and returns its exit code. UsageError, gyre::Error.
  virtual int run(const ClusterJob& job, const std::vector<std::string>& environment) const = 0;
};

/// Writes the page of `gyre run --report` from the file of metrics, and from those of timelines (with kRankMark in
/// their name) unless that is empty. gyre::Error.
using WriteReport =
    std::function<void(const std::string& metrics, const std::string& page, const std::string& timeline)>;

/// The verb `gyre run`, which also takes the options of torchrun and of horovodrun.
class RunCommand {
 public:
  /// What stands in for what is not there: no options of it.
  struct Parts {
    std::unique_ptr<JobStaging> staging{};
    WriteReport write_report{};
    std::unique_ptr<JobPage> page{};
    std::unique_ptr<JobCluster> cluster{};
  };

  explicit RunCommand(CLI::App& app, Parts parts);

  /// Divides what follows the verb into the options of `gyre run` (returned, in our spelling) and the command to run
  /// (kept): the command starts after "--", or at the first word that is neither an option nor an option's value.
  /// UsageError for an option that does not exist.
  std::vector<std::string> take_command(const std::vector<std::string>& arguments);

  /// After the options were parsed. Returns the exit code. UsageError, gyre::Error.
  int run(const std::vector<std::string>& environment);

 private:
  void add_own_options();
  void add_torchrun_options();
  void add_horovodrun_options();
  void add_ignored(const std::string& names, const char* type_name);

  bool as_torchrun() const;
  int rank_count() const;
  int node_count() const;
  /// `python`: what torchrun's form of the command, which names a script, is started with.
  std::vector<std::string> full_command(const std::string& python) const;
  /// With what the options say by variables.
  std::vector<std::string> with_settings(std::vector<std::string> environment) const;
  std::vector<std::string> full_environment(const std::vector<std::string>& inherited) const;
  void set_part(launch::LaunchOptions& options) const;
  /// --servers: adds them to the ranks. With -H, those of all hosts.
  void set_servers(launch::LaunchOptions& options) const;
  /// --redirects, --tee and --local-ranks-filter.
  std::vector<int> shown_streams(int ranks) const;
  void set_output(launch::LaunchOptions& options) const;
  /// --metrics, or what --report needs; empty without both.
  std::string metrics_file() const;
  /// Each rank writes a timeline, for the page or because the file is named so.
  bool is_traced_for_page() const;
  std::string timeline_of_ranks() const;
  /// Gives the file of rank 0 the name that was asked for.
  void name_timeline() const;
  /// What a job service wants of the metrics, where nobody else wants them. The ranks must not want it again.
  void set_service_metrics(launch::LaunchOptions& options) const;
  void report() const;
  /// --stdin. `ranks`: of the job.
  void set_input(launch::LaunchOptions& options, int ranks) const;
  /// --cluster. UsageError for options that are not for it.
  ClusterJob cluster_job() const;
  void refuse_without_cluster() const;
  bool over_hosts() const { return !hosts_.empty() || !host_file_.empty(); }
  void refuse_beside_hosts() const;
  /// Runs a job, and says how it ended where somebody wants to know.
  int start(const std::function<launch::LaunchResult()>& job) const;
  std::vector<std::string> ssh_words() const;
  /// -H and --hostfile.
  launch::HostsOptions hosts_options(const launch::LaunchOptions& options,
                                     const std::vector<std::string>& environment) const;

  static constexpr int kMostRestarts = 1000;

  CLI::App* verb_;
  std::vector<std::string> command_;
  std::string ranks_;
  std::string servers_;
  std::string server_hosts_;
  std::string grace_seconds_ = "5";
  std::string timeline_;
  std::string metrics_;
  std::string report_;
  std::string log_dir_;
  std::vector<std::string> variables_;
  bool horovod_compat_ = false;
  bool keras_2018_ = false;
  bool plaintext_ = false;
  std::string bind_;
  std::string allowed_;
  int verbosity_ = 0;
  bool agent_ = false;
  std::string input_;
  std::string result_file_;
  Parts parts_;

  std::string ranks_per_node_;
  std::string nodes_ = "1";
  std::string node_rank_;
  std::string rendezvous_endpoint_;
  std::string master_address_;
  std::string master_port_;
  std::string run_id_ = "none";
  std::string max_restarts_ = "0";
  std::string role_ = "default";
  std::string redirects_;
  std::string tee_;
  std::string shown_ranks_;
  std::string signals_;
  bool standalone_ = false;
  bool module_ = false;
  bool no_python_ = false;
  bool run_path_ = false;

  std::string hosts_;
  std::string host_file_;
  std::string ssh_ = "ssh";
  std::string ssh_port_;
  std::string ssh_identity_;
  std::string interfaces_;
  std::string fusion_megabytes_;
  std::string start_timeout_;
  std::string stall_warning_;
  std::string stall_failure_;
  std::string log_level_;
  std::string devices_per_rank_;
  bool no_stall_check_ = false;
  bool mark_cycles_ = false;
  std::vector<std::string> ignored_;
  bool ignored_flag_ = false;
};

}  // namespace gyre::app
