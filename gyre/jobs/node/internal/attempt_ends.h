#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "gyre/jobs/orders/node_report.h"
#include "gyre/jobs/orders/work_order.h"

namespace gyre::jobs::node::internal {

/// How an attempt ends on this node. Without an error it has succeeded, or was asked to end because of another node.
struct AttemptEnds {
  int exit_code = 0;
  std::optional<resources::ResourceError> error;
  bool asked_to_end = false;
  bool was_done = false;  ///< As in ExitRecord.
};

/// Thrown by waits: the attempt is to be left as it is.
struct LeaveNow {};

/// A fault of the node, not of the job.
AttemptEnds internal_failure(const orders::WorkOrder& order, const std::string& what);
/// The same by an exception. Where the disk is full and none of the job's processes has begun, the details say kNoRoom:
/// the job waits for room.
AttemptEnds internal_failure(const orders::WorkOrder& order, const std::exception& error, bool begun);
/// The job's launcher could start none of the ranks.
AttemptEnds start_failure(const orders::WorkOrder& order, const std::string& what);
/// A place for mounts, logs or outputs that the node cannot use; `details` says which.
AttemptEnds unusable_path(const orders::WorkOrder& order, const std::string& what, const std::string& kind,
                          const std::string& place);
AttemptEnds stopped_because(orders::StopReason reason, const orders::WorkOrder& order);

/// What the exit record says about the end.
orders::ExitRecord record_of(const AttemptEnds& end, std::int64_t started_us);
/// And what the job's log on the node says, in order.
std::vector<std::string> sentences_about(const AttemptEnds& end);

}  // namespace gyre::jobs::node::internal
