#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "gyre/jobs/orders/work_order.h"
#include "gyre/jobs/resources/resources.h"

namespace gyre::jobs::orders {

/// How far a node is with its attempt. It only ever goes on.
enum class Phase {
  kPreparing,  ///< Folders, mounts, the cluster's setup, the job's preparation.
  kPrepared,   ///< Waits for the other nodes.
  kRunning,
  kDone,   ///< Its own processes have succeeded; it is held until the other nodes are done.
  kEnded,  ///< Nothing of the job is left on it; the record says how it went.
};
const char* name_of(Phase phase);
std::optional<Phase> phase_named(const std::string& name);

/// Values of an error's detail "reason" for InternalError, in addition to the names of StopReason: nothing of the job's
/// processes has run on the node, because its disk is full; or the job's launcher could start none of the ranks.
constexpr const char* kNoRoom = "noRoom";
constexpr const char* kNotStarted = "notStarted";

/// The truth about how an attempt ended on one node. It lies on the node's disk before anybody hears of it.
struct ExitRecord {
  int exit_code = 0;
  std::optional<resources::ResourceError> error;  ///< Nothing: it succeeded, or was ended because of another node.
  bool asked_to_end = false;  ///< By the service, because of another node, a request or a lost lease.
  /// Its lease was lost when its own processes had ended well, or it had none. Then the others' records say how the
  /// attempt ended, and the error is its end only where they do not.
  bool was_done = false;
  std::int64_t started_us = 0;  ///< Of CLOCK_REALTIME; when the order was accepted.
  std::int64_t ended_us = 0;
  std::vector<std::string> left_behind;  ///< What the job left on the node, and was removed: processes, memory.

  bool operator==(const ExitRecord&) const = default;
};

/// All that the service needs to know of an attempt on one node. A later report says everything that an earlier one
/// said, so that none of them has to arrive but the last.
struct NodeReport {
  std::string attempt;
  Phase phase = Phase::kPreparing;
  std::optional<NodeFacts> facts;    ///< From kPrepared on; nothing where it ended before.
  std::optional<ExitRecord> record;  ///< With kEnded.
  /// Where logs and outputs lie for those outside the job's mounts; known once the folders have been made.
  std::string log_folder;
  std::map<std::string, std::string> outputs;  ///< By id.
  std::vector<std::string> notes;              ///< For the job's events, in order; at most kMostNotes.
  /// The node sends the attempt's logs to the service, and has not sent all of them. The attempt is not over before.
  bool sends_logs = false;

  static constexpr std::size_t kMostNotes = 100;
  bool operator==(const NodeReport&) const = default;
};

nlohmann::json to_json(const ExitRecord& record);
nlohmann::json to_json(const NodeReport& report);
/// From untrusted text. Error(kCorruptData).
ExitRecord exit_record_from_json(const nlohmann::json& json);
NodeReport node_report_from_json(const nlohmann::json& json);
/// From a record that a node program has written. Error(kCorruptData, kIo).
NodeReport read_node_report(const std::filesystem::path& file);

/// Why a node is asked to end an attempt.
enum class StopReason {
  kRequest,    ///< Somebody terminated the job.
  kOtherNode,  ///< It has failed on another node.
  kWallClock,  ///< constraints.maxWallClockTime has passed.
  kLeaseLost,  ///< The node cannot reach the service, which may give the job to others soon.
  kPreempted,  ///< The nodes are wanted otherwise; the job will be queued again.
};
const char* name_of(StopReason reason);
std::optional<StopReason> stop_reason_named(const std::string& name);

}  // namespace gyre::jobs::orders
