#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gyre/jobs/catalog/types.h"

namespace gyre::jobs::catalog {

class Store;

/// How an attempt ended.
struct AttemptEnd {
  enum class Outcome {
    kSucceeded,  ///< The job is done.
    kFailed,     ///< The job is done for.
    kRequeued,   ///< The job waits for another attempt.
  };
  Outcome outcome = Outcome::kSucceeded;
  std::optional<int> exit_code{};
  std::optional<JobError> error{};  ///< Needed where it failed.
  Cause cause{};
};

/// The life of an attempt: planned, started, perhaps ending, ended. Each step may be taken again without any effect,
/// also after later ones, because news comes late and twice.
class Attempts {
 public:
  explicit Attempts(Store& store) : store_(store) {}

  /// Writes down that attempt `number` of a queued job is to be started on these idle nodes of its cluster, which are
  /// `running` from now on. When that very attempt exists already it is returned as it is.
  Attempt plan(Id job, int number, const std::vector<Id>& nodes, const Cause& cause);
  /// A node works for it: the job is `running`, unless it is being ended.
  void confirm_start(std::string_view id, const Cause& cause);
  /// Writes down that it is to be ended. What is to be terminated is not requeued any more; the other way round it is.
  void plan_end(std::string_view id, EndIntent intent, const Cause& cause);
  /// Nothing of it runs any more. Its nodes, where they are not lost, are `preparing` until they are clean. The first
  /// report counts. An attempt that is to be terminated cannot end with its job requeued. When the job has finished,
  /// its secrets are deleted.
  void confirm_end(std::string_view id, const AttemptEnd& end);

  /// Error(kNotFound) when it does not exist.
  Attempt get(std::string_view id);
  /// Of a job, in order.
  std::vector<Attempt> list(Id job);
  /// Planned, started or ending.
  std::vector<Attempt> unended();

  /// For the agents of an attempt that has not ended, and for nobody else. Error(kInvalidArgument) when it has ended.
  std::vector<Secret> secrets(std::string_view id);

 private:
  Store& store_;
};

}  // namespace gyre::jobs::catalog
