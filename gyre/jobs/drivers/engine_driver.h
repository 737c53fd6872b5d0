#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "gyre/jobs/drivers/driver.h"
#include "gyre/jobs/drivers/engine_options.h"
#include "gyre/jobs/drivers/node_engine.h"

namespace gyre::jobs::drivers {

/// Nodes that an engine gives. Each attempt is one request to the engine, which runs `gyre agent` on each of its nodes;
/// the caller's nodes are only names, and which of the engine's nodes they are is decided for each attempt anew. The
/// engine is asked only whether a request waits, runs or is over: how an attempt ended its node programs tell the hub.
/// Nothing has to be shared with the nodes: they get the key of their attempt from the engine, and the rest over their
/// connection.
class EngineDriver : public Driver {
 public:
  /// `kind`: of the driver, which names files. Error(kInvalidArgument) when a shared folder is named that is none;
  /// Error(kIo). One driver at a time in a folder: the caller sees to that.
  EngineDriver(std::string kind, const EngineOptions& options, std::shared_ptr<NodeEngine> engine);
  /// Leaves node programs and attempts as they are.
  ~EngineDriver() override;

  orders::NodePlace place(const std::string& node, std::int64_t number) const override;
  /// Error(kInvalidArgument) says all that NodeEngine::check() finds missing.
  void check(const spec::ClusterSpec& cluster) const override;
  /// As the service's own machine is answered by the image's registry.
  std::optional<std::string> image_digest(const spec::JobSpec& job, const spec::ClusterSpec& cluster) const override;
  WorkOrder completed(WorkOrder order) const override;
  node::NodeFolders folders(const WorkOrder& order) const override;
  int most_nodes() const override;
  std::vector<std::string> node_problems() const override;
  std::vector<Artifact> plan(const WorkOrder& order) const override;
  void submit(const WorkOrder& order) override;
  std::vector<Event> watch(Deadline deadline) override;
  int fd() const override;
  void cancel(const std::string& attempt, StopReason reason, std::chrono::seconds grace) override;
  std::shared_ptr<hub::NodeStream> open_stream(const orders::StreamRequest& request, std::size_t node) override;
  void reattach(const std::vector<WorkOrder>& orders) override;
  /// The engine knows which of its requests run. It has no orders: what it runs of attempts that are not asked for is
  /// ended.
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

}  // namespace gyre::jobs::drivers
