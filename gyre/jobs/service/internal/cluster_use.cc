#include "gyre/jobs/service/internal/cluster_use.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "gyre/jobs/resources/resources.h"

namespace gyre::jobs::service {

using catalog::TimeUs;
using resources::ExecutionState;
using resources::NodeState;

namespace {

int* count_of(ClusterNow& now, std::string_view node_state) {
  if (node_state.empty()) return nullptr;  // It is new, or gone.
  if (node_state == resources::name(NodeState::kRunning)) return &now.running;
  if (node_state == resources::name(NodeState::kIdle)) return &now.idle;
  return &now.other;
}

}  // namespace

UseHistory::UseHistory(const ClusterNow& now, TimeUs begin, TimeUs end, int parts) : now_(now), reached_(end) {
  use_.part_us = std::max<TimeUs>(1, (end - begin) / parts);
  use_.begin = end - use_.part_us * parts;
  use_.known_from = use_.begin;
  for (auto* series : {&use_.running, &use_.idle, &use_.other, &use_.waiting}) {
    series->resize(static_cast<std::size_t>(parts));
  }
}

void UseHistory::add_until(TimeUs time) {
  while (reached_ > time) {
    const TimeUs part = (reached_ - 1 - use_.begin) / use_.part_us;
    const TimeUs from = std::max(time, use_.begin + part * use_.part_us);
    const double share = static_cast<double>(reached_ - from) / static_cast<double>(use_.part_us);
    const auto at = static_cast<std::size_t>(part);
    use_.running[at] += share * now_.running;
    use_.idle[at] += share * now_.idle;
    use_.other[at] += share * now_.other;
    use_.waiting[at] += share * now_.waiting;
    reached_ = from;
  }
}

bool UseHistory::take(const catalog::Event& event) {
  // A clock that was set back gives an earlier event a later time.
  add_until(std::max(event.time, use_.begin));
  if (event.time < use_.begin) return false;
  if (event.subject == "node") {
    if (int* after = count_of(now_, event.to)) *after = std::max(0, *after - 1);
    if (int* before = count_of(now_, event.from)) ++*before;
  } else if (event.subject == "job" && event.from != event.to) {
    const std::string_view queued = resources::name(ExecutionState::kQueued);
    if (event.to == queued) now_.waiting = std::max(0, now_.waiting - 1);
    if (event.from == queued) ++now_.waiting;
  }
  return true;
}

resources::ClusterUse UseHistory::result(bool all_known) && {
  if (all_known) {
    add_until(use_.begin);
  } else {
    use_.known_from = reached_;
  }
  return std::move(use_);
}

}  // namespace gyre::jobs::service
