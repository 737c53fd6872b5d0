#pragma once

#include <optional>
#include <set>
#include <vector>

#include "gyre/jobs/catalog/types.h"

namespace gyre::jobs::catalog {

class Store;

/// Which events to read. At most one.
struct EventFilter {
  std::optional<Id> workspace{};
  std::optional<Id> cluster{};
  std::optional<Id> job{};
};

/// Every change of a state, numbered in the order in which they happened.
class Events {
 public:
  explicit Events(Store& store) : store_(store) {}

  Page<Event> list(const EventFilter& filter, const PageRequest& request = {});
  /// Deletes those before `time` among the oldest, but none of jobs that have not finished; the latest stays, because
  /// numbers are never used again. Returns how many; 0 where there is nothing more to be deleted.
  int forget_before(TimeUs time);
  /// The number of the latest event; 0 when there is none.
  Id latest();
  /// The jobs that events behind this one are about. Each change of a job, and of its attempts, is one.
  std::set<Id> jobs_changed_after(Id sequence);

 private:
  Store& store_;
};

}  // namespace gyre::jobs::catalog
