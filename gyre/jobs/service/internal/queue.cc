#include "gyre/jobs/service/internal/queue.h"

#include <utility>

#include "gyre/jobs/service/internal/records.h"

namespace gyre::jobs::service {

using catalog::Id;

void Queue::refresh(catalog::Catalog& catalog, const std::set<Id>& busy) {
  const Id latest = catalog.events().latest();
  if (!last_event_) {
    catalog.jobs().for_each_unfinished([&](const catalog::Job& job) { put(catalog, job, busy.contains(job.id)); });
  } else {
    for (const Id id : catalog.events().jobs_changed_after(*last_event_)) {
      if (const auto job = catalog.jobs().find(id)) {
        put(catalog, *job, busy.contains(id));
      } else {
        forget(id);
      }
    }
  }
  last_event_ = latest;
}

void Queue::put(catalog::Catalog& catalog, const catalog::Job& job, bool busy) {
  forget(job.id);
  if (resources::is_finished(job.execution_state)) return;
  std::string& workspace = workspaces_[job.workspace];
  if (workspace.empty()) workspace = catalog.workspaces().get(job.workspace).name;
  const auto stored = stored_spec(job);
  const bool waits = !busy && job.execution_state == resources::ExecutionState::kQueued;
  if (!stored.spec && waits) return;  // Nobody can start it.
  const spec::JobSpec spec = stored.spec.value_or(spec::JobSpec{});
  scheduler::Job described{.id = job.id,
                           .name = job.name,
                           .workspace = workspace,
                           .cluster = job.cluster,
                           .priority = scheduled(spec.scheduling_priority),
                           .sequence = job.id,
                           .node_count = spec.node_count,
                           .wall_clock_limit = spec.max_wall_clock_time,
                           .attempts = job.attempts,
                           // Those that it has had, and those that it would have if all of its nodes were lost.
                           .max_attempts = job.attempts + retry_limits(spec).after_loss - job.losses};
  if (waits) {
    waiting_.put(described);
  } else {
    busy_.emplace(job.id, std::move(described));
  }
}

void Queue::forget(Id id) {
  busy_.erase(id);
  paused_.erase(id);
  waiting_.remove(id);
}

void Queue::pause(const std::set<Id>& jobs) {
  std::erase_if(paused_, [&](const auto& paused) {
    if (jobs.contains(paused.first)) return false;
    waiting_.put(paused.second);
    return true;
  });
  for (const Id id : jobs) {
    if (const scheduler::Job* job = waiting_.find(id)) {
      paused_.emplace(id, *job);
      waiting_.remove(id);
    }
  }
}

}  // namespace gyre::jobs::service
