#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "gyre/base/clock.h"
#include "gyre/base/error.h"
#include "gyre/jobs/hub/hub.h"
#include "gyre/jobs/node/node_folders.h"
#include "gyre/jobs/orders/work_order.h"

namespace gyre::jobs::drivers {

using orders::StopReason;
using orders::WorkOrder;
/// What watch() tells: that an attempt runs, what is to be known of it, how it ended, that a node was lost.
using Event = hub::HubEvent;

/// Something that a driver would hand to its engine.
struct Artifact {
  std::string name;
  std::string text;
};

struct EndedOrder {
  WorkOrder order;
  hub::AttemptResult result;
};

/// What nodes know of attempts that have not been acknowledged.
struct AtNodes {
  std::vector<WorkOrder> orders;  ///< That they have in hand, each once.
  std::vector<EndedOrder> ended;  ///< That have ended on all their nodes.
  std::set<std::string> known;    ///< Of the attempts that were asked for: those that all their nodes have or had.
};

/// A way to get nodes: this machine, or an engine that has many. A driver starts one node program on each node of an
/// attempt; from there on everything is the same everywhere. Attempts are told apart by WorkOrder::attempt.
///
/// The caller names the nodes, writes down what it is about to do before it does it, and calls from one thread.
/// Everything may be called again after a restart of the service: nothing is started twice.
class Driver {
 public:
  virtual ~Driver() = default;

  /// The caller's node of that name. `number`: the caller's own, from 1, of no other node. Pure.
  virtual orders::NodePlace place(const std::string& node, std::int64_t number) const = 0;
  /// How many nodes one cluster can have.
  virtual int most_nodes() const = 0;
  /// Error(kInvalidArgument) for a cluster of which can be seen from here that none of its jobs could start: a mount
  /// that leads nowhere; Error(kUnsupported) where it is what the engine lacks. What only nodes can see, they report
  /// when a job starts. Thread-safe.
  virtual void check(const spec::ClusterSpec& /*cluster*/) const {}
  /// Error(kInvalidArgument) for a job that asks for more than such a cluster can ever give it; kResourceExhausted
  /// where that is cores or memory. Thread-safe.
  virtual void check_job(const spec::JobSpec& /*job*/, const spec::ClusterSpec& /*cluster*/) const {}
  /// Sentences about nodes that no job can have at present, for people. Asks nobody; thread-safe.
  virtual std::vector<std::string> node_problems() const { return {}; }
  /// By which contents the job's container is made on every node, whatever its image's name leads to later: a digest.
  /// Nothing: there is no container, or no registry is asked. Errors as containers::ContainerRuntime::digest_of(). May
  /// take seconds; thread-safe.
  virtual std::optional<std::string> image_digest(const spec::JobSpec& /*job*/,
                                                  const spec::ClusterSpec& /*cluster*/) const {
    return std::nullopt;
  }
  /// How many GPUs a job of the cluster has on each node if it does not ask for a number; nothing: that is not for the
  /// driver to say. Thread-safe.
  virtual std::optional<int> gpus_per_node(const spec::ClusterSpec& /*cluster*/) const { return std::nullopt; }
  /// The order as its nodes get it: with everything that the driver decides. Pure, thread-safe.
  virtual WorkOrder completed(WorkOrder order) const = 0;
  /// Of the node that a completed order is for, as its jobs see them. Pure, thread-safe.
  virtual node::NodeFolders folders(const WorkOrder& order) const = 0;

  /// What submit() would hand over; for people and tests. Starts nothing. No secret is in it. Error(kInvalidArgument)
  /// for an order that can never run here.
  virtual std::vector<Artifact> plan(const WorkOrder& order) const = 0;
  /// Of orders that are to be submitted, in this order: what each has to wait for before that, and nothing where it has
  /// to wait for nothing.
  virtual std::vector<std::string> waits(const std::vector<WorkOrder>& orders) const {
    return std::vector<std::string>(orders.size());
  }
  /// Returns at once; events tell the rest. Completes the order.
  /// Error(kInvalidArgument) as plan().
  virtual void submit(const WorkOrder& order) = 0;
  /// What has happened since the last call; waits for something until the deadline. Has to be called for anything to go
  /// on.
  virtual std::vector<Event> watch(Deadline deadline) = 0;
  /// Readable while watch() would not wait.
  virtual int fd() const = 0;
  /// Ends an attempt, from whatever phase. One that is not known, or has ended, is left alone.
  virtual void cancel(const std::string& attempt, StopReason reason, std::chrono::seconds grace) = 0;
  /// As hub::Hub::open_stream(), to a node of the attempt. Thread-safe. Error(kUnsupported).
  virtual std::shared_ptr<hub::NodeStream> open_stream(const orders::StreamRequest& /*request*/, std::size_t /*node*/) {
    throw Error(ErrorCode::kUnsupported, "the nodes of this cluster cannot be reached through the service");
  }
  /// Whether it is certain that no service has submitted the order.
  virtual bool is_new(const WorkOrder& /*order*/) const { return false; }
  /// After a restart of the service: these attempts were submitted, or about to be, and their ends are not known. Each
  /// goes on where it is, or ends as lost; one that was not submitted is now. To be called once and first, with nothing
  /// where there is nothing.
  virtual void reattach(const std::vector<WorkOrder>& orders) = 0;
  // After the service's records were restored from a backup they may be older than what nodes do. Before reattach():

  /// What the nodes have in hand, and what they know of these attempts. Asks nobody who could not answer.
  virtual AtNodes at_nodes(const std::vector<WorkOrder>& asked) const = 0;
  /// Ends what runs of these jobs (by their uuids) outside of the nodes that have `in_hand` it. Returns what is waited
  /// for; nothing once it has been seen that nothing is left, so that attempts may begin. To be called until then.
  virtual std::string end_strays(const std::set<std::string>& jobs, const std::set<std::string>& in_hand) = 0;
  /// Whether end_strays() sees all that a service on another machine, or before a restart of this one, has left: an
  /// engine does, for which machine the service is on does not matter.
  virtual bool sees_all_machines() const = 0;

  /// The attempt's end has been written down; the nodes may forget it.
  virtual void acknowledge(const std::string& attempt) = 0;
  /// The caller does not want the node any more, and will not name another one so.
  virtual void release(const std::string& node) = 0;
  /// After reattach(): the caller's nodes. Others were released before the restart; what is left of them goes.
  virtual void retain(const std::set<std::string>& /*nodes*/) {}
};

}  // namespace gyre::jobs::drivers
