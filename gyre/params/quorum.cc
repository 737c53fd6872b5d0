#include "gyre/params/quorum.h"

#include <fmt/format.h>

#include <algorithm>

#include "gyre/base/error.h"

namespace gyre::params {

Quorum::Quorum(int workers, int servers, int backup)
    : servers_(servers), backup_(backup), workers_(static_cast<std::size_t>(workers)) {}

int Quorum::active_workers() const { return static_cast<int>(std::ranges::count(workers_, true, &Worker::active)); }

Quorum::Verdicts Quorum::ready(int number, bool asks) {
  Worker& worker = at(number);
  if (worker.lost) return {};
  if (!worker.active || worker.complete) {
    throw Error(ErrorCode::kProtocol,
                fmt::format("worker {} sent a gradient {}", number,
                            worker.active ? "before the verdict on the one before" : "after it had left"));
  }
  if (++worker.ready_servers < servers_) return {};
  worker.ready_servers = 0;
  if (asks || worker.seen_steps < steps_) {
    worker.seen_steps = steps_;
    Verdict verdict{.step = steps_, .contributors = {}, .late = {}, .asking = {}};
    (asks ? verdict.asking : verdict.late).push_back(number);
    return {std::move(verdict)};
  }
  worker.complete = true;
  return decide();
}

Quorum::Verdicts Quorum::decide() {
  const auto at_work = std::ranges::count_if(workers_, [](const Worker& each) { return each.active && !each.pauses; });
  const auto complete = std::ranges::count(workers_, true, &Worker::complete);
  const auto wanted = static_cast<std::ptrdiff_t>(workers_.size()) - backup_;
  if (complete == 0 || complete < std::min(wanted, at_work)) return {};
  Verdict verdict{.step = ++steps_, .contributors = {}, .late = {}, .asking = {}};
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    if (!workers_[i].complete) continue;
    verdict.contributors.push_back(static_cast<int>(i));
    workers_[i].complete = false;
    workers_[i].seen_steps = steps_;
  }
  return {std::move(verdict)};
}

Quorum::Verdicts Quorum::pause(int worker) {
  at(worker).pauses = true;
  return decide();
}

Quorum::Verdicts Quorum::resume(int worker) {
  at(worker).pauses = false;
  return {};
}

Quorum::Verdicts Quorum::leave(int number) {
  Worker& worker = at(number);
  if (!worker.active || worker.complete || worker.ready_servers > 0) {
    throw Error(ErrorCode::kProtocol,
                fmt::format("worker {} left {}", number, worker.active ? "in the middle of a step" : "twice"));
  }
  worker.active = false;
  return decide();
}

Quorum::Verdicts Quorum::lose(int number) {
  Worker& worker = at(number);
  if (!worker.active) return {};
  worker = {.active = false, .lost = true, .pauses = false, .complete = false, .ready_servers = 0, .seen_steps = 0};
  return decide();
}

}  // namespace gyre::params
