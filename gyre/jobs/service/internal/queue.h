#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>

#include "gyre/jobs/catalog/catalog.h"
#include "gyre/jobs/scheduler/line.h"

namespace gyre::jobs::service {

/// The jobs that have not finished, as the scheduler sees them. They are read from the catalog once, and later only
/// where an event says that a job has changed, so that a turn costs the same however long the queue is. Not
/// thread-safe.
class Queue {
 public:
  /// What has changed since the last call. `busy`: the jobs with an attempt that has not ended. Outside transactions of
  /// the catalog. When it throws, the next call reads the same again.
  void refresh(catalog::Catalog& catalog, const std::set<catalog::Id>& busy);
  /// These jobs are not to begin yet; those of the last call that are not among them may again.
  void pause(const std::set<catalog::Id>& jobs);

  /// Queued, neither busy nor paused. Those whose specs cannot be read are left out.
  const scheduler::Line& waiting() const { return waiting_; }
  /// The other jobs that have not finished.
  const std::map<catalog::Id, scheduler::Job>& busy() const { return busy_; }

 private:
  void put(catalog::Catalog& catalog, const catalog::Job& job, bool busy);
  void forget(catalog::Id id);

  std::optional<catalog::Id> last_event_;  // That was looked at.
  scheduler::Line waiting_;
  std::map<catalog::Id, scheduler::Job> paused_;
  std::map<catalog::Id, scheduler::Job> busy_;
  std::map<catalog::Id, std::string> workspaces_;  // Their names.
};

}  // namespace gyre::jobs::service
