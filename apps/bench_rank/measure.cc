#include "apps/bench_rank/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <thread>

#include "gyre/base/error.h"
#include "gyre/collectives/kernels.h"

namespace gyre::bench_rank {

namespace {
constexpr std::size_t kMostBuffers = 1024;
constexpr double kMostRounds = 2000;
}  // namespace

double microseconds_since(SteadyClock::time_point start) {
  return std::chrono::duration<double, std::micro>(SteadyClock::now() - start).count();
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::size_t buffers_for(std::size_t size_bytes, const Effort& effort) {
  return std::clamp<std::size_t>(effort.rotation_bytes / std::max<std::size_t>(size_bytes, 1), 2, kMostBuffers);
}

engine::Request sum_of(const std::string& name, std::span<float> values) {
  engine::Request request;
  request.name = name;
  request.signature = {.kind = engine::OperationKind::kAllreduce,
                       .type = engine::DataType::kFloat32,
                       .shape = {static_cast<std::int64_t>(values.size())}};
  request.input = std::as_bytes(values);
  request.output = std::as_writable_bytes(values);
  return request;
}

int rounds_for(double once_us, const Effort& effort) {
  const double fewest = effort.seconds == 0 ? 1 : effort.fewest_rounds;
  return static_cast<int>(
      std::clamp(effort.seconds * 1e6 / std::max(once_us, 0.1), fewest, std::max(kMostRounds, fewest)));
}

int agreed_rounds(engine::Runtime& runtime, double once_us, const Effort& effort) {
  std::vector<float> rounds{static_cast<float>(rounds_for(once_us, effort))};
  engine::Request request = sum_of("rounds", rounds);
  request.signature.kind = engine::OperationKind::kBroadcast;
  static_cast<void>(runtime.engine().run(std::move(request)));
  return static_cast<int>(rounds[0]);
}

void meet(engine::Runtime& runtime) {
  engine::Request barrier;
  barrier.name = "meet";
  static_cast<void>(runtime.engine().run(std::move(barrier)));
}

void require_sum(const engine::Runtime& runtime, std::span<const float> values, const std::string& what) {
  const float expected = static_cast<float>(runtime.size() * (runtime.size() + 1)) / 2;
  const auto wrong = std::find_if(values.begin(), values.end(), [&](float value) { return value != expected; });
  if (wrong == values.end()) return;
  throw Error(ErrorCode::kInternal,
              fmt::format("wrong answer on rank {}: element {} of {} ({} elements) is {} instead of {}", runtime.rank(),
                          wrong - values.begin(), what, values.size(), *wrong, expected));
}

std::uint64_t bytes_sent(engine::Runtime& runtime) {
  std::uint64_t bytes = 0;
  for (const engine::LaneStatistics& lane : runtime.engine().statistics().lanes)
    bytes += lane.counters.bytes_sent.value();
  return bytes;
}

std::vector<double> add_up_by_host(engine::Runtime& runtime, double bytes) {
  const group::Topology& topology = runtime.group().topology();
  std::vector<double> by_host(topology.hosts().size());
  by_host[static_cast<std::size_t>(topology.host_index())] = bytes;
  engine::Request request;
  request.name = "sent";
  request.signature = {.kind = engine::OperationKind::kAllreduce,
                       .type = engine::DataType::kFloat64,
                       .shape = {static_cast<std::int64_t>(by_host.size())}};
  request.output = std::as_writable_bytes(std::span(by_host));
  request.input = request.output;
  static_cast<void>(runtime.engine().run(std::move(request)));
  return by_host;
}

double measure_sums(int rank_count, int thread_count, std::size_t buffer_bytes) {
  constexpr int kRounds = 9;
  // An odd number of pages and some lines between the buffers, as between arenas: no aliasing in the low address bits.
  const std::size_t distance_bytes = buffer_bytes + 4096 + std::size_t{9} * 64;
  std::vector<std::byte> memory(distance_bytes * static_cast<std::size_t>(rank_count));
  const std::size_t share_bytes = buffer_bytes / static_cast<std::size_t>(thread_count) / 64 * 64;
  std::barrier together(thread_count);
  std::vector<double> times_us(static_cast<std::size_t>(thread_count));
  std::vector<std::thread> threads;
  for (std::size_t thread = 0; thread < times_us.size(); ++thread) {
    threads.emplace_back([&, thread] {
      std::vector<std::byte*> shares;
      for (int rank = 0; rank < rank_count; ++rank) {
        shares.push_back(memory.data() + static_cast<std::size_t>(rank) * distance_bytes + thread * share_bytes);
      }
      const std::vector<const std::byte*> sources(shares.begin(), shares.end());
      std::vector<double> times;
      for (int round = 0; round < kRounds; ++round) {
        together.arrive_and_wait();
        const auto start = SteadyClock::now();
        collectives::reduce_to_many(shares, sources, share_bytes / sizeof(float), engine::DataType::kFloat32,
                                    engine::ReduceOperation::kSum);
        times.push_back(microseconds_since(start));
      }
      times_us[thread] = median(std::move(times));
    });
  }
  for (std::thread& thread : threads) thread.join();
  return static_cast<double>(buffer_bytes) / *std::ranges::max_element(times_us) * 1e6;
}

}  // namespace gyre::bench_rank
