#include "gyre/engine/metrics.h"

#include <chrono>

namespace gyre::engine {
namespace {

double seconds(std::chrono::nanoseconds time) { return std::chrono::duration<double>(time).count(); }

struct Lanes {
  double sent_bytes = 0;
  double received_bytes = 0;
  double waiting_seconds = 0;

  void add(const std::vector<LaneStatistics>& lanes) {
    for (const LaneStatistics& lane : lanes) {
      sent_bytes += static_cast<double>(lane.counters.bytes_sent.value());
      received_bytes += static_cast<double>(lane.counters.bytes_received.value());
      waiting_seconds += static_cast<double>(lane.counters.waiting_ns.value()) * 1e-9;
    }
  }
};

struct Steps {
  double steps = 0;
  double exchange_seconds = 0;
  double hidden_seconds = 0;
  double exposed_seconds = 0;

  void add(const std::vector<PlanStatistics>& plans) {
    for (const PlanStatistics& plan : plans) {
      steps += static_cast<double>(plan.steps);
      exchange_seconds += seconds(plan.total.exchange);
      hidden_seconds += seconds(plan.total.hidden);
      exposed_seconds += seconds(plan.total.exposed);
    }
  }
};

}  // namespace

std::vector<metrics::Value> metrics_of(const EngineStatistics& statistics) {
  Lanes lanes;
  lanes.add(statistics.lanes);
  lanes.add(statistics.ended_lanes);
  Steps plans;
  plans.add(statistics.plans);
  plans.add(statistics.ended_plans);
  std::vector<metrics::Value> values = {{"gyre/sent_bytes", lanes.sent_bytes},
                                        {"gyre/received_bytes", lanes.received_bytes},
                                        {"gyre/waiting_seconds", lanes.waiting_seconds}};
  if (plans.steps == 0) return values;
  values.push_back({"gyre/steps", plans.steps});
  values.push_back({"gyre/exchange_seconds", plans.exchange_seconds});
  values.push_back({"gyre/hidden_seconds", plans.hidden_seconds});
  values.push_back({"gyre/exposed_seconds", plans.exposed_seconds});
  return values;
}

}  // namespace gyre::engine
