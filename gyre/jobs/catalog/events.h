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
  /// The number of the latest event; 0 when there is none.
  Id latest();
  /// The jobs that events behind this one are about. Each change of a job, and of its attempts, is one.
  std::set<Id> jobs_changed_after(Id sequence);

 private:
  Store& store_;
};

}  // namespace gyre::jobs::catalog
