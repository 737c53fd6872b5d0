#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "gyre/base/clock.h"
#include "gyre/jobs/agent/hub.h"
#include "gyre/jobs/agent/work_order.h"

namespace gyre::jobs::drivers {

using agent::StopReason;
using agent::WorkOrder;
/// What watch() tells: that an attempt runs, what is to be known of it, how it ended, that a node was lost.
using Event = agent::HubEvent;

/// Something that a driver would hand to its engine.
struct Artifact {
  std::string name;
  std::string text;
};

/// A way to get nodes: this machine, or an engine that has many. A driver starts one agent on each node of an attempt;
/// from there on everything is the same everywhere. Attempts are told apart by WorkOrder::attempt.
///
/// The caller names the nodes, writes down what it is about to do before it does it, and calls from one thread.
/// Everything may be called again after a restart of the service: nothing is started twice.
class Driver {
 public:
  virtual ~Driver() = default;

  /// What submit() would hand over; for people and tests. Starts nothing. No secret is in it. Error(kInvalidArgument)
  /// for an order that can never run here.
  virtual std::vector<Artifact> plan(const WorkOrder& order) const = 0;
  /// Returns at once; events tell the rest. Fills in WorkOrder::shared_folder and WorkOrder::key.
  /// Error(kInvalidArgument) as plan().
  virtual void submit(const WorkOrder& order) = 0;
  /// What has happened since the last call; waits for something until the deadline. Has to be called for anything to go
  /// on.
  virtual std::vector<Event> watch(Deadline deadline) = 0;
  /// Readable while watch() would not wait.
  virtual int fd() const = 0;
  /// Ends an attempt, from whatever phase. One that is not known, or has ended, is left alone.
  virtual void cancel(const std::string& attempt, StopReason reason, std::chrono::seconds grace) = 0;
  /// After a restart of the service: these attempts were submitted and their ends are not known. Each goes on where it
  /// is, or ends as lost.
  virtual void reattach(const std::vector<WorkOrder>& orders) = 0;
  /// The attempt's end has been written down; the nodes may forget it.
  virtual void acknowledge(const std::string& attempt) = 0;
};

}  // namespace gyre::jobs::drivers
