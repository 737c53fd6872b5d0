#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gyre/base/log.h"
#include "gyre/jobs/drivers/driver.h"
#include "gyre/jobs/node/expansion.h"

namespace gyre::jobs::drivers::slurm {

struct SlurmOptions {
  std::filesystem::path folder;  ///< Of the service's own; what must survive a restart.
  /// Where jobs have what their nodes share: the same folder under the same path for the service and on all nodes.
  /// Empty: each node has its own.
  std::filesystem::path shared_folder = {};
  std::filesystem::path node_folder = "/tmp";  ///< On each node; its own where they have a disk.
  std::string address;                         ///< Where nodes reach the service. Empty: this host's address.
  int port = 0;                                ///< 0: any.
  std::string gyre = "gyre";                   ///< The program on the nodes.
  std::map<std::string, std::string> sbatch;   ///< Options of sbatch by name: "partition", "account", "time", …
  node::Variables environment;                 ///< Of Slurm's commands, and of the node programs.
  std::string job_user = "nobody";             ///< As whom jobs run where the service is root.
  std::chrono::milliseconds lease{60'000};
  std::chrono::milliseconds margin{10'000};
  std::chrono::milliseconds poll{1'000};  ///< How often Slurm is asked while it has jobs of ours.
  std::chrono::milliseconds longest_start{
      60'000};                       ///< From the start of Slurm's job until all node programs have come.
  std::chrono::seconds give_up{60};  ///< Node programs without a job and a service end after so long.
  hub::LogStoreOptions logs = {};
  Logger logger = null_logger();
};

/// From the driverOptions of a cluster. Error(kInvalidArgument) names one that is missing, wrong or not known.
SlurmOptions options_from(const std::map<std::string, std::string>& driver_options);

/// Nodes that Slurm gives. Each attempt is one job of Slurm, which runs `gyre agent` on each of its nodes; the caller's
/// nodes are only names, and which of Slurm's nodes they are Slurm decides for each attempt anew. Slurm is asked only
/// whether its job waits, runs or is over: how an attempt ended its node programs tell the hub. Nothing has to be
/// shared with the nodes: they get the key of their attempt with Slurm's job, and the rest over their connection.
class SlurmDriver final : public Driver {
 public:
  /// Error(kInvalidArgument) when a shared folder is named that is none; Error(kIo). One driver at a time in a folder:
  /// the caller sees to that.
  explicit SlurmDriver(const SlurmOptions& options);
  /// Leaves node programs and attempts as they are.
  ~SlurmDriver() override;

  orders::NodePlace place(const std::string& node, std::int64_t number) const override;
  void check_job(const spec::JobSpec& job, const spec::ClusterSpec& cluster) const override;
  WorkOrder completed(WorkOrder order) const override;
  node::NodeFolders folders(const WorkOrder& order) const override;
  int most_nodes() const override;
  std::vector<Artifact> plan(const WorkOrder& order) const override;
  void submit(const WorkOrder& order) override;
  std::vector<Event> watch(Deadline deadline) override;
  int fd() const override;
  void cancel(const std::string& attempt, StopReason reason, std::chrono::seconds grace) override;
  void reattach(const std::vector<WorkOrder>& orders) override;
  /// Slurm knows which of its jobs run. It has no orders: what it runs of attempts that are not asked for is ended.
  AtNodes at_nodes(const std::vector<WorkOrder>& asked) const override;
  std::string end_strays(const std::set<std::string>& jobs, const std::set<std::string>& in_hand) override;
  bool sees_all_machines() const override { return true; }
  void acknowledge(const std::string& attempt) override;
  /// Nodes go with their attempts.
  void release(const std::string& /*node*/) override {}

 private:
  class Work;
  std::unique_ptr<Work> work_;
};

}  // namespace gyre::jobs::drivers::slurm
