#include "gyre/params/quorum.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

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
    Verdict verdict = nothing();
    (asks ? verdict.asking : verdict.late).push_back(number);
    return {std::move(verdict)};
  }
  worker.complete = true;
  return decide();
}

Quorum::Verdicts Quorum::announce(int number) {
  Worker& worker = at(number);
  if (worker.lost) return {};
  if (!worker.active || worker.complete || worker.ready_servers > 0) {
    throw Error(ErrorCode::kProtocol, fmt::format("worker {} announced a gradient {}", number,
                                                  worker.active ? "in the middle of a step" : "after it had left"));
  }
  if (worker.seen_steps < steps_) {
    Verdict verdict = nothing();
    verdict.refused.push_back(number);
    return {std::move(verdict)};
  }
  give_up(number);
  announced_.push_back(number);
  return decide();
}

/// What the worker has announced does not count.
void Quorum::give_up(int number) {
  at(number).admitted = false;
  std::erase(announced_, number);
}

/// Takes a step if it is time, and admits whom there is room for.
Quorum::Verdicts Quorum::decide() {
  const auto at_work = std::ranges::count_if(workers_, [](const Worker& each) { return each.active && !each.pauses; });
  const auto complete = std::ranges::count(workers_, true, &Worker::complete);
  const bool all_admitted_are_complete =
      std::ranges::all_of(workers_, [](const Worker& each) { return !each.admitted || each.complete; });
  Verdicts verdicts;
  if (complete > 0 && all_admitted_are_complete && complete >= std::min(places(), at_work)) {
    take_step(verdicts.emplace_back(nothing()));
  }
  admit(verdicts);
  return verdicts;
}

void Quorum::take_step(Verdict& verdict) {
  verdict.step = ++steps_;
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    if (!workers_[i].complete) continue;
    verdict.contributors.push_back(static_cast<int>(i));
    workers_[i].complete = workers_[i].admitted = false;
    workers_[i].seen_steps = steps_;
  }
  verdict.refused = std::exchange(announced_, {});  // Of the parameters before.
}

void Quorum::admit(Verdicts& verdicts) {
  auto taken = std::ranges::count_if(workers_, [](const Worker& each) { return each.admitted || each.complete; });
  while (!announced_.empty() && taken++ < places()) {
    Verdict& verdict = verdicts.emplace_back(nothing());
    verdict.admitted.push_back(announced_.front());
    at(announced_.front()).admitted = true;
    announced_.erase(announced_.begin());
  }
}

Quorum::Verdicts Quorum::pause(int worker) {
  at(worker).pauses = true;
  give_up(worker);
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
  give_up(number);
  return decide();
}

Quorum::Verdicts Quorum::lose(int number) {
  Worker& worker = at(number);
  if (!worker.active) return {};
  give_up(number);
  worker = {.active = false, .lost = true};
  return decide();
}

}  // namespace gyre::params
