#include "gyre/engine/explain.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <vector>

#include "gyre/base/clock.h"
#include "gyre/collectives/collectives.h"
#include "gyre/engine/internal/channels.h"
#include "gyre/group/lane.h"

namespace gyre::engine {

namespace {

constexpr int kLatencyRounds = 41;
constexpr std::chrono::milliseconds kLongestLatencyMeasurement{20};
/// Of one rank, there and back: with two ranks more than most caches hold.
constexpr std::size_t kCopyBytes = std::size_t{16} << 20;
constexpr int kCopyRounds = 3;
constexpr std::size_t kFirstLinkBytes = std::size_t{64} << 10;
constexpr std::size_t kLastLinkBytes = std::size_t{16} << 20;
/// Longest wait for another rank while the machine is measured.
constexpr std::chrono::minutes kMeasurementTimeout{10};
/// A transfer this long is no longer about latency.
constexpr double kLongEnoughSeconds = 0.015;

double seconds_since(SteadyClock::time_point start) {
  return std::chrono::duration<double>(SteadyClock::now() - start).count();
}

double combined(group::Lane& lane, double value, collectives::ReduceOperation operation) {
  const collectives::Reduction reduction{.type = collectives::DataType::kFloat64, .operation = operation};
  collectives::allreduce(lane, std::as_writable_bytes(std::span(&value, 1)), reduction);
  return value;
}

/// The slowest rank's, so that all agree.
double longest(group::Lane& lane, double value) { return combined(lane, value, collectives::ReduceOperation::kMax); }

double measure_latency(group::Lane& lane) {
  float value = 0;
  std::vector<double> times;
  const auto begin = SteadyClock::now();
  for (int round = 0; round < kLatencyRounds; ++round) {
    const auto start = SteadyClock::now();
    collectives::allreduce(lane, std::as_writable_bytes(std::span(&value, 1)), {});
    times.push_back(seconds_since(start));
    // Every eighth round the ranks agree whether to go on: with more ranks than cores a round can take milliseconds.
    constexpr int kBetweenAgreements = 8;
    if (round % kBetweenAgreements != kBetweenAgreements - 1) continue;
    if (longest(lane, seconds_since(begin)) > std::chrono::duration<double>(kLongestLatencyMeasurement).count()) break;
  }
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return longest(lane, *middle);
}

double measure_memory(group::Lane& lane) {
  const std::vector<char> from(kCopyBytes, 1);
  std::vector<char> to(kCopyBytes, 2);
  collectives::barrier(lane);
  const auto start = SteadyClock::now();
  for (int round = 0; round < kCopyRounds; ++round) std::memcpy(to.data(), from.data(), from.size());
  const double own = kCopyRounds * static_cast<double>(kCopyBytes) / seconds_since(start);
  const double all = combined(lane, own, collectives::ReduceOperation::kSum);
  return all / static_cast<double>(lane.topology().hosts().size());
}

double measure_links(group::Lane& lane, double latency_seconds) {
  const auto hosts = static_cast<double>(lane.topology().hosts().size());
  if (hosts == 1) return 0;
  std::vector<std::byte> buffer;
  for (std::size_t size_bytes = kFirstLinkBytes;; size_bytes *= 4) {
    buffer.resize(size_bytes);
    const auto start = SteadyClock::now();
    collectives::allreduce(lane, buffer, {});
    const double seconds = longest(lane, seconds_since(start));
    if (seconds < kLongEnoughSeconds && size_bytes < kLastLinkBytes) continue;
    const double sent = 2 * (hosts - 1) / hosts * static_cast<double>(size_bytes);
    return sent / std::max(seconds - latency_seconds, seconds / 2);
  }
}

double microseconds(std::chrono::nanoseconds time) { return std::chrono::duration<double, std::micro>(time).count(); }

nlohmann::json describe(const BucketStatistics& bucket, const collectives::Placement& placement) {
  return {{"tensors", bucket.tensor_count},
          {"bytes", bucket.size_bytes},
          {"type", collectives::name(bucket.type)},
          {"algorithm", collectives::algorithm_name(bucket.algorithm)},
          {"reason", bucket.reason},
          {"piece_bytes", collectives::piece_bytes(bucket.algorithm, bucket.size_bytes, placement)},
          {"ready_us", microseconds(bucket.ready)},
          {"start_us", microseconds(bucket.start)},
          {"end_us", microseconds(bucket.end)}};
}

nlohmann::json describe(const StepStatistics& step) {
  return {{"backward_us", microseconds(step.backward)},  {"exchange_us", microseconds(step.exchange)},
          {"hidden_us", microseconds(step.hidden)},      {"exposed_us", microseconds(step.exposed)},
          {"overtaken_buckets", step.overtaken_buckets}, {"missing_tensors", step.missing_tensors}};
}

nlohmann::json describe(const PlanStatistics& plan, const collectives::Placement& placement) {
  nlohmann::json buckets = nlohmann::json::array();
  for (const BucketStatistics& bucket : plan.buckets) buckets.push_back(describe(bucket, placement));
  return {{"name", plan.name},  {"steps", plan.steps},         {"arena_bytes", plan.arena_bytes},
          {"buckets", buckets}, {"last", describe(plan.last)}, {"total", describe(plan.total)}};
}

nlohmann::json describe(const LaneStatistics& lane) {
  const auto time = [](const Counter& nanoseconds) { return static_cast<double>(nanoseconds.value()) * 1e-3; };
  return {{"lane", lane.lane},
          {"collectives", lane.counters.collectives.value()},
          {"bytes_sent", lane.counters.bytes_sent.value()},
          {"bytes_in_place", lane.counters.bytes_in_place.value()},
          {"bytes_received", lane.counters.bytes_received.value()},
          {"waiting_us", time(lane.counters.waiting_ns)},
          {"copying_us", time(lane.counters.copying_ns)},
          {"reducing_us", time(lane.counters.reducing_ns)},
          {"sending_us", time(lane.counters.sending_ns)}};
}

}  // namespace

MachineRates measure_machine(group::Group& group) {
  const auto start = SteadyClock::now();
  const std::size_t segment_bytes = collectives::segment_bytes_for(group.topology().local_size(), 0);
  group::Lane lane(group, {internal::kExplainChannel, segment_bytes, kMeasurementTimeout});
  MachineRates rates;
  const double latency_seconds = measure_latency(lane);
  rates.latency = std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(latency_seconds));
  rates.memory_bytes_per_second = measure_memory(lane);
  rates.link_bytes_per_second = measure_links(lane, latency_seconds);
  collectives::barrier(lane);  // Nobody takes the lane down while others still wait in it.
  rates.took = SteadyClock::now() - start;
  return rates;
}

std::string exchange_report(const group::Topology& topology, const MachineRates& rates,
                            const EngineStatistics& statistics) {
  nlohmann::json report = {{"ranks", topology.size()},
                           {"hosts", topology.hosts().size()},
                           {"rates",
                            {{"latency_us", microseconds(rates.latency)},
                             {"memory_bytes_per_second", rates.memory_bytes_per_second},
                             {"link_bytes_per_second", rates.link_bytes_per_second},
                             {"took_us", microseconds(rates.took)}}},
                           {"plans", nlohmann::json::array()},
                           {"lanes", nlohmann::json::array()}};
  const collectives::Placement placement = collectives::placement_of(topology);
  for (const auto* plans : {&statistics.ended_plans, &statistics.plans}) {
    for (const PlanStatistics& plan : *plans) report["plans"].push_back(describe(plan, placement));
  }
  for (const auto* lanes : {&statistics.lanes, &statistics.ended_lanes}) {
    for (const LaneStatistics& lane : *lanes) report["lanes"].push_back(describe(lane));
  }
  // A plan may have any name.
  return report.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace gyre::engine
