#include "python/gyre/core/statistics_binding.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <chrono>

namespace gyre::python {

namespace nb = nanobind;

namespace {

double seconds(std::chrono::nanoseconds time) { return std::chrono::duration<double>(time).count(); }
double seconds(const Counter& nanoseconds) { return static_cast<double>(nanoseconds.value()) * 1e-9; }

nb::dict describe(const engine::BucketStatistics& bucket) {
  nb::dict result;
  result["tensor_count"] = bucket.tensor_count;
  result["size_bytes"] = bucket.size_bytes;
  result["type"] = collectives::name(bucket.type);
  result["algorithm"] = collectives::algorithm_name(bucket.algorithm);
  result["reason"] = bucket.reason;
  result["ready_s"] = seconds(bucket.ready);
  result["start_s"] = seconds(bucket.start);
  result["end_s"] = seconds(bucket.end);
  return result;
}

nb::dict describe(const engine::StepStatistics& step) {
  nb::dict result;
  result["backward_s"] = seconds(step.backward);
  result["exchange_s"] = seconds(step.exchange);
  result["hidden_s"] = seconds(step.hidden);
  result["exposed_s"] = seconds(step.exposed);
  result["overtaken_buckets"] = step.overtaken_buckets;
  result["missing_tensors"] = step.missing_tensors;
  return result;
}

nb::dict describe(const engine::LaneStatistics& lane) {
  nb::dict result;
  result["lane"] = lane.lane;
  result["collectives"] = lane.counters.collectives.value();
  result["bytes_sent"] = lane.counters.bytes_sent.value();
  result["bytes_received"] = lane.counters.bytes_received.value();
  result["bytes_in_place"] = lane.counters.bytes_in_place.value();
  result["futex_sleeps"] = lane.counters.futex_sleeps.value();
  result["yields"] = lane.counters.yields.value();
  result["waiting_s"] = seconds(lane.counters.waiting_ns);
  result["copying_s"] = seconds(lane.counters.copying_ns);
  result["reducing_s"] = seconds(lane.counters.reducing_ns);
  result["sending_s"] = seconds(lane.counters.sending_ns);
  return result;
}

nb::dict describe(const engine::PlanStatistics& statistics);

template <typename Items>
nb::list to_list(const Items& items) {
  nb::list result;
  for (const auto& item : items) result.append(describe(item));
  return result;
}

nb::dict describe(const engine::PlanStatistics& statistics) {
  nb::dict result;
  result["name"] = statistics.name;
  result["steps"] = statistics.steps;
  result["arena_bytes"] = statistics.arena_bytes;
  result["buckets"] = to_list(statistics.buckets);
  result["last"] = describe(statistics.last);
  result["total"] = describe(statistics.total);
  return result;
}

}  // namespace

nb::dict to_python(const engine::PlanStatistics& statistics) { return describe(statistics); }

nb::dict to_python(const engine::EngineStatistics& statistics) {
  nb::dict result;
  result["lanes"] = to_list(statistics.lanes);
  result["plans"] = to_list(statistics.plans);
  return result;
}

}  // namespace gyre::python
