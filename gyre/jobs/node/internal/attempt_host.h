#pragma once

#include <string>
#include <vector>

#include "gyre/jobs/node/internal/saved_attempt.h"
#include "gyre/jobs/orders/node_report.h"

namespace gyre::jobs::node::internal {

/// What is done elsewhere for the process of an attempt.
class AttemptHost {
 public:
  virtual ~AttemptHost() = default;
  /// Returns once the state is written down. Error(kIo, kResourceExhausted); LeaveNow when there is nobody to do it.
  virtual void save(const SavedAttempt& state) = 0;
  /// Passes on how far the attempt is, and its notes.
  virtual void report(orders::Phase phase, const std::vector<std::string>& notes) = 0;
  /// Keeps a line for the job's log on the node until there is one.
  virtual void keep_line(const std::string& line) = 0;
};

}  // namespace gyre::jobs::node::internal
