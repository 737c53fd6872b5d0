#include "gyre/engine/metrics.h"

#include <chrono>

namespace gyre::engine {
namespace {

double seconds(std::chrono::nanoseconds time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

void Costs::add(const EngineStatistics& statistics) {
  for (const auto* lanes : {&statistics.lanes, &statistics.ended_lanes}) {
    for (const LaneStatistics& lane : *lanes) {
      sent_bytes_ += static_cast<double>(lane.counters.bytes_sent.value());
      received_bytes_ += static_cast<double>(lane.counters.bytes_received.value());
      waiting_seconds_ += static_cast<double>(lane.counters.waiting_ns.value()) * 1e-9 + seconds(lane.awaited);
    }
  }
  for (const auto* plans : {&statistics.plans, &statistics.ended_plans}) {
    for (const PlanStatistics& plan : *plans) {
      steps_ += static_cast<double>(plan.steps);
      exchange_seconds_ += seconds(plan.total.exchange);
      hidden_seconds_ += seconds(plan.total.hidden);
      exposed_seconds_ += seconds(plan.total.exposed + plan.awaited);
    }
  }
}

std::vector<metrics::Value> Costs::values() const {
  std::vector<metrics::Value> values = {{"gyre/sent_bytes", sent_bytes_},
                                        {"gyre/received_bytes", received_bytes_},
                                        {"gyre/waiting_seconds", waiting_seconds_}};
  if (steps_ == 0) return values;
  values.push_back({"gyre/steps", steps_});
  values.push_back({"gyre/exchange_seconds", exchange_seconds_});
  values.push_back({"gyre/hidden_seconds", hidden_seconds_});
  values.push_back({"gyre/exposed_seconds", exposed_seconds_});
  return values;
}

std::vector<metrics::Value> metrics_of(const EngineStatistics& statistics) {
  Costs costs;
  costs.add(statistics);
  return costs.values();
}

}  // namespace gyre::engine
