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
  /// What counts towards the limits of a job that waits for another attempt.
  enum class Counts { kNothing, kLoss, kRetry };
  Outcome outcome = Outcome::kSucceeded;
  Counts counts = Counts::kNothing;
  std::optional<TimeUs> retry{};  ///< The next attempt begins no earlier.
  std::optional<int> exit_code{};
  std::optional<ResourceError> error{};  ///< Needed where it failed.
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

  /// After a backup was restored: an attempt that runs on these nodes, which the catalog does not know, or not any
  /// more. It counts as started; one before it that has no end here has ended by now. Nodes that are not known either
  /// are entered, with their numbers where these are free. False, and no change, where it cannot be the job's next one:
  /// the job has succeeded or is being deleted or ended, a later attempt is known, a node has other work.
  bool adopt(Id job, int number, const std::vector<AttemptNode>& nodes, const Cause& cause);
  /// The same for one that has ended already. False where it is known to have ended, or cannot be.
  bool adopt_end(Id job, int number, const std::vector<AttemptNode>& nodes, TimeUs started, TimeUs ended,
                 const AttemptEnd& end);

  /// Error(kNotFound) when it does not exist.
  Attempt get(std::string_view id);
  /// Of a job, in order.
  std::vector<Attempt> list(Id job);
  /// Planned, started or ending.
  std::vector<Attempt> unended();

  /// For the node programs of an attempt that has not ended, and for nobody else. Error(kInvalidArgument) when it has
  /// ended.
  std::vector<Secret> secrets(std::string_view id);

 private:
  /// A queued job's, of a number that need not follow the last one's; it has no nodes yet.
  Attempt insert(const Job& job, int number, const Cause& cause);

  Store& store_;
};

}  // namespace gyre::jobs::catalog
