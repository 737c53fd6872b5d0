#include "gyre/jobs/scheduler/line.h"

#include "gyre/base/check.h"

namespace gyre::jobs::scheduler {

Place place_of(const Job& job) { return {-static_cast<int>(job.priority), job.sequence}; }

void Lane::put(const Job& job) {
  GYRE_CHECK(jobs_.emplace(place_of(job), job).second);  // Sequences are unique.
  ++sizes_[job.node_count];
}

void Lane::remove(Place place) {
  const auto job = jobs_.find(place);
  const auto size = sizes_.find(job->second.node_count);
  if (--size->second == 0) sizes_.erase(size);
  jobs_.erase(job);
}

Line::Line(const std::vector<Job>& jobs) {
  for (const Job& job : jobs) put(job);
}

void Line::put(const Job& job) {
  remove(job.id);
  const Key key{job.cluster, job.workspace};
  lanes_[key].put(job);
  places_[job.id] = {key, place_of(job)};
}

void Line::remove(JobId id) {
  const auto known = places_.find(id);
  if (known == places_.end()) return;
  const auto lane = lanes_.find(known->second.first);
  lane->second.remove(known->second.second);
  if (lane->second.jobs().empty()) lanes_.erase(lane);
  places_.erase(known);
}

const Job* Line::find(JobId id) const {
  const auto known = places_.find(id);
  if (known == places_.end()) return nullptr;
  return &lanes_.at(known->second.first).jobs().at(known->second.second);
}

}  // namespace gyre::jobs::scheduler
