#include "gyre/jobs/scheduler/decide.h"

#include "gyre/jobs/scheduler/internal/pass.h"

namespace gyre::jobs::scheduler {

std::string_view reason_name(Reason reason) {
  switch (reason) {
    case Reason::kResourcesFree: return "resourcesFree";
    case Reason::kBackfill: return "backfill";
    case Reason::kNodeLost: return "nodeLost";
    case Reason::kAttemptsUsedUp: return "attemptsUsedUp";
    case Reason::kWallClockLimit: return "wallClockLimit";
    case Reason::kClusterShrinks: return "clusterShrinks";
    case Reason::kClusterGrows: return "clusterGrows";
    case Reason::kClusterIsGone: return "clusterIsGone";
  }
  return "unknown";
}

std::vector<Decision> decide(const State& state) { return decide(state, Line(state.waiting)); }

std::vector<Decision> decide(const State& state, const Line& waiting) {
  return Pass(state, waiting, Extent::kDecisions).decisions();
}

}  // namespace gyre::jobs::scheduler
