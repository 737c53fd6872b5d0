#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "gyre/base/thread_annotations.h"
#include "gyre/jobs/drivers/driver.h"
#include "gyre/jobs/drivers/driver_settings.h"
#include "gyre/jobs/drivers/local/internal/gpu_pool.h"
#include "gyre/jobs/drivers/local/internal/machine.h"
#include "gyre/jobs/drivers/local/internal/restarts.h"
#include "gyre/jobs/hub/hub.h"
#include "gyre/jobs/node/detached_program.h"
#include "gyre/jobs/node/lost_node.h"

namespace gyre::jobs::drivers::local {

inline constexpr int kMostNodes = 250;

struct LocalOptions : DriverSettings {
  std::chrono::milliseconds longest_start{30'000};
  std::chrono::seconds give_up{60};  ///< Node programs without a job and a service end after so long.
};

/// `count` nodes of this machine: "node-0" at 127.0.0.2, and so on. All of them have all its cores. Error(
/// kInvalidArgument) beyond 250.
std::vector<orders::NodePlace> local_nodes(int count);

/// Virtual nodes on this machine. Each has an address of its own, a folder of its own below `folder`/nodes, and an
/// node program, which is started when the node's first attempt comes, and started again when it is killed; more and
/// more slowly, and not for ever, where it dies at once. An attempt that has lost a node ends when all that ran of it
/// there has been killed. Each attempt has GPUs of its own.
class LocalDriver final : public Driver {
 public:
  /// Error(kInvalidArgument | kIo). One driver at a time in a folder: the caller sees to that.
  explicit LocalDriver(const LocalOptions& options);
  /// Leaves node programs and attempts as they are. Waits for node programs that are just being started.
  ~LocalDriver() override;

  std::vector<Artifact> plan(const WorkOrder& order) const override;
  void submit(const WorkOrder& order) override;
  std::vector<Event> watch(Deadline deadline) override;
  int fd() const override { return hub_->fd(); }
  void cancel(const std::string& attempt, StopReason reason, std::chrono::seconds grace) override;
  std::shared_ptr<hub::NodeStream> open_stream(const orders::StreamRequest& request, std::size_t node) override {
    return hub_->open_stream(request, node);
  }
  void reattach(const std::vector<WorkOrder>& orders) override;
  AtNodes at_nodes(const std::vector<WorkOrder>& asked) const override;
  std::string end_strays(const std::set<std::string>& jobs, const std::set<std::string>& in_hand) override;
  bool sees_all_machines() const override { return false; }
  void acknowledge(const std::string& attempt) override;
  /// Its folder goes with its node program, but for logs and outputs that jobs have kept there.
  void release(const std::string& node) override;
  void retain(const std::set<std::string>& nodes) override;

  orders::NodePlace place(const std::string& node, std::int64_t number) const override;
  void check(const spec::ClusterSpec& cluster) const override;
  void check_job(const spec::JobSpec& job, const spec::ClusterSpec& /*cluster*/) const override {
    gpus_.check(job);
    internal::check_machine(job);
  }
  std::optional<std::string> image_digest(const spec::JobSpec& job, const spec::ClusterSpec& cluster) const override {
    return internal::image_digest(job, cluster, options_.environment);
  }
  std::optional<int> gpus_per_node(const spec::ClusterSpec& cluster) const override { return gpus_.share(cluster); }
  std::vector<std::string> waits(const std::vector<WorkOrder>& orders) const override { return gpus_.waits(orders); }
  bool is_new(const WorkOrder& order) const override;
  WorkOrder completed(WorkOrder order) const override;
  node::NodeFolders folders(const WorkOrder& order) const override;
  int most_nodes() const override { return kMostNodes; }
  std::filesystem::path node_folder(const std::string& node) const { return options_.folder / "nodes" / node; }

 private:
  /// What the nodes of an attempt share.
  std::filesystem::path attempt_folder(const std::string& attempt) const {
    return options_.folder / "attempts" / attempt;
  }
  std::filesystem::path gpu_file(const std::string& attempt) const { return attempt_folder(attempt) / "gpus"; }
  /// The node programs of its nodes are started where they are not there.
  void take_up(const WorkOrder& order);
  std::vector<std::string> program_command(const orders::NodePlace& node) const;
  /// Where its time has come.
  void ensure_program(const std::string& node);
  void ensure_absent_programs();
  void hear_of_starts();
  void program_ended(const std::string& node, const std::string& words);
  /// Until an absent node program is to be started; `deadline` where that is earlier, or none is.
  Deadline next_start(Deadline deadline) const;
  bool in_use(const std::string& node) const;
  bool may_start_program(const std::string& node) const;
  node::LostAttempt lost_attempt(const std::string& attempt, const std::string& node) const;
  void lose(const std::string& node);
  void go_on_ending();
  bool has_ended(const std::string& attempt) const;
  bool has_program(const std::string& node) const;
  void forget_node(const std::string& node);
  void forget_released();

  /// Of what may still run on a lost node.
  struct Ending {
    std::vector<std::string> attempts;
    SteadyClock::time_point since;
    SteadyClock::time_point next_look;
    bool noted = false;  // That it takes long.
  };

  /// What came of starting a node program.
  struct Start {
    std::string node;
    node::Words words{};
  };

  LocalOptions options_;
  net::JobKey key_;
  internal::GpuPool gpus_;
  std::unique_ptr<hub::Hub> hub_;
  std::map<std::string, orders::NodePlace> places_;           // By id; of all nodes that were ever used.
  std::map<std::string, internal::Restarts> restarts_;        // Of nodes whose node programs were started once.
  std::set<std::string> absent_;                              // Those of them that are not connected.
  std::map<std::string, std::vector<std::string>> attempts_;  // The nodes of those whose end is not acknowledged.
  std::set<std::string> released_;                            // Whose node programs are yet to go.
  std::set<std::string> lost_;                                // Whose node programs are not started again.
  std::map<std::string, Ending> endings_;                     // Of those of them of which something may still run.
  std::vector<Event> held_;                                   // Ends of attempts, until nothing of them runs.
  std::vector<Event> notes_;                                  // That watch() is yet to tell.
  std::map<std::string, std::thread> starting_;               // By node: its node program is being started.
  Mutex mutex_;
  std::vector<Start> starts_ GYRE_GUARDED_BY(mutex_);  // That watch() is yet to hear of.
};

}  // namespace gyre::jobs::drivers::local
