#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "gyre/jobs/scheduler/state.h"

namespace gyre::jobs::scheduler {

/// Where a waiting job stands; smaller is further ahead.
struct Place {
  int rank = 0;  ///< The negative of its priority.
  std::int64_t sequence = 0;
  auto operator<=>(const Place&) const = default;
};
Place place_of(const Job& job);

/// The waiting jobs of one workspace on one cluster: all of them wait for the same nodes and the same quota.
class Lane {
 public:
  const std::map<Place, Job>& jobs() const { return jobs_; }
  /// The fewest nodes that one of them needs. There must be one.
  int smallest() const { return sizes_.begin()->first; }

  void put(const Job& job);
  void remove(Place place);

 private:
  std::map<Place, Job> jobs_;
  std::map<int, int> sizes_;  ///< How many of the jobs need so many nodes.
};

/// All waiting jobs in order, kept from one decision to the next: a job that comes or goes costs the same however many
/// wait.
class Line {
 public:
  using Key = std::pair<ClusterId, std::string>;  ///< And the name of the workspace.

  Line() = default;
  explicit Line(const std::vector<Job>& jobs);

  /// Instead of what was known of the same job.
  void put(const Job& job);
  /// Nothing happens where it does not wait.
  void remove(JobId id);
  /// Null where it does not wait. Valid until it is put again or removed.
  const Job* find(JobId id) const;
  std::size_t size() const { return places_.size(); }
  /// None of them is empty.
  const std::map<Key, Lane>& lanes() const { return lanes_; }

 private:
  std::map<Key, Lane> lanes_;
  std::unordered_map<JobId, std::pair<Key, Place>> places_;
};

}  // namespace gyre::jobs::scheduler
