#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gyre/jobs/orders/node_report.h"
#include "gyre/jobs/orders/work_order.h"

namespace gyre::jobs::hub {

/// How an attempt ended, over all its nodes.
struct AttemptResult {
  int exit_code = 0;
  std::optional<resources::ResourceError>
      error;                      ///< Exactly one where it failed; nothing where it succeeded or was preempted.
  bool preempted = false;         ///< It was ended for others and may be queued again.
  std::vector<std::string> lost;  ///< Nodes that were lost with it; it may be queued again, unless `hopeless`.
  bool hopeless = false;          ///< A node's program died again and again: the next node's would, too.
  std::int64_t started_us = 0;
  std::int64_t ended_us = 0;
  std::string log_folder;                      ///< Where its logs are.
  std::map<std::string, std::string> outputs;  ///< By id.

  bool succeeded() const { return !error && !preempted; }
  bool operator==(const AttemptResult&) const = default;
};

enum class NodeLoss {
  kByChance,  ///< The attempt may fare better on another node.
  kHopeless,  ///< Node programs do not live here.
};

/// What the service wants of a node.
enum class NodeCommand { kNone, kPrepare, kRun, kFinish, kStop, kForget };

/// One attempt as the service sees it: from what its nodes report to what they are to do. A state machine without clock
/// and network; what comes twice or late has no effect. A node ends without an error only where it was told to finish,
/// so all were done then, even if the others' node programs have restarted and report an earlier phase. Not
/// thread-safe.
///
/// * No node starts the job's processes before all are prepared, and none is let go before all are done.
/// * The first failure ends the other nodes, and is the attempt's one error.
/// * Who is asked to end with a grace is asked while the nodes that are done still serve: processes on them belong to
///   those of others (`gyre run` and mpirun start them from there).
class AttemptRun {
 public:
  /// `order`: for any of the nodes.
  explicit AttemptRun(orders::WorkOrder order);

  const orders::WorkOrder& order() const { return order_; }
  /// The order for one node.
  orders::WorkOrder order_for(int node) const;
  /// Nothing when the attempt is not on that node program's node.
  std::optional<int> index_of(const std::string& program) const;

  /// Where a node is, as its node program tells; changes nothing where the order says so. Nobody prepares before all
  /// are known.
  void place(int node, const std::string& address, int cores, int gpus);

  void report(int node, const orders::NodeReport& report);
  /// Its node program has not renewed its lease: nothing of the attempt can run there any more.
  void lose(int node, const std::string& why, NodeLoss loss = NodeLoss::kByChance);
  void stop(orders::StopReason reason, std::chrono::seconds grace);
  /// The service has recorded the result; the nodes may forget it.
  void acknowledge() { acknowledged_ = true; }

  /// What to tell a node now. It follows from the reports alone, so that it can be told again after a lost connection.
  NodeCommand command_for(int node) const;
  /// For kRun: of all nodes.
  std::vector<orders::NodeFacts> all_facts() const;
  /// For kStop.
  orders::StopReason stop_reason() const { return stop_ ? stop_->reason : orders::StopReason::kOtherNode; }
  std::chrono::seconds stop_grace() const { return stop_ ? stop_->grace : kGraceAfterFailure; }

  /// All nodes run its processes, or have. Not where one has ended before it was prepared.
  bool running() const;
  bool ended() const;
  /// And the logs of its nodes have come, as far as they will.
  bool complete() const;
  /// Precondition: ended().
  AttemptResult result() const;
  /// Of the nodes that are not lost, by their registered names. Precondition: ended().
  std::map<std::string, orders::NodeReport> last_reports() const;
  /// Whether all nodes have forgotten, or are lost.
  bool forgotten() const;
  void forget(int node) { nodes_[static_cast<std::size_t>(node)].forgotten = true; }
  /// Of all nodes, each sentence once, in the order in which they were reported.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  static constexpr std::chrono::seconds kGraceAfterFailure{2};

  struct NodeView {
    std::optional<orders::NodeReport> report;
    std::optional<std::string> lost;  ///< Why.
    bool hopeless = false;
    bool forgotten = false;
    bool over() const { return lost || (report && report->phase == orders::Phase::kEnded); }
    bool sends_logs() const { return !lost && report && report->sends_logs; }
  };
  struct Stop {
    orders::StopReason reason;
    std::chrono::seconds grace;
  };

  bool all_at_least(orders::Phase phase) const;
  /// Some node has processes of its own that have not ended.
  bool some_run() const;
  /// Nodes that have lost their leases although they were done: when the first did, and with which error.
  struct LostWhenDone {
    std::int64_t ended_us = std::numeric_limits<std::int64_t>::max();
    std::pair<int, resources::ResourceError> cause;
  };
  std::optional<LostWhenDone> lost_when_done() const;
  /// Why it has failed, once it has ended.
  std::optional<std::pair<int, resources::ResourceError>> failure() const;
  bool placed() const;
  void blame(int exit_code, const resources::ResourceError& error);

  orders::WorkOrder order_;
  std::vector<NodeView> nodes_;
  std::optional<Stop> stop_;
  /// The first failure that nobody asked for.
  std::optional<std::pair<int, resources::ResourceError>> cause_;
  std::int64_t cause_us_ = std::numeric_limits<std::int64_t>::max();  ///< When, as its node's record says.
  bool acknowledged_ = false;
  std::vector<std::string> notes_;
};

}  // namespace gyre::jobs::hub
