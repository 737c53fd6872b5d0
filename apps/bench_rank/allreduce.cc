// One collective at a time, of one size after the other: ordinary tensors through synchronous calls (path "tensor") and
// tensors that live in the arena through a plan (path "arena").
#include <fmt/format.h>

#include <algorithm>

#include "apps/bench_rank/benches.h"

namespace gyre::bench_rank {

namespace {

using engine::DataType;
using engine::ReduceOperation;
using engine::Runtime;

/// Of one collective.
struct Cost {
  double time_us;
  std::vector<double> sent_bytes;  ///< From each host.
};

Cost measure_tensors(Runtime& runtime, std::size_t size_bytes, const Effort& effort) {
  const std::size_t count = size_bytes / sizeof(float);
  std::vector<std::vector<float>> buffers(buffers_for(size_bytes, effort), std::vector<float>(count, 1.0F));
  const auto once = [&](std::size_t round) {
    const auto start = SteadyClock::now();
    static_cast<void>(runtime.engine().run(sum_of("bench", buffers[round % buffers.size()])));
    return microseconds_since(start);
  };
  constexpr std::size_t kWarmUp = 3;
  for (std::size_t round = 0; round < kWarmUp; ++round) static_cast<void>(once(round));
  const int rounds = agreed_rounds(runtime, once(kWarmUp), effort);
  const std::uint64_t sent_before = bytes_sent(runtime);
  std::vector<double> times;
  for (int round = 0; round < rounds; ++round) times.push_back(once(static_cast<std::size_t>(round)));
  const double sent = static_cast<double>(bytes_sent(runtime) - sent_before) / rounds;
  std::vector<float> check(count, static_cast<float>(runtime.rank() + 1));
  static_cast<void>(runtime.engine().run(sum_of("bench", check)));
  require_sum(runtime, check, fmt::format("an allreduce of {} bytes", size_bytes));
  return {median(std::move(times)), add_up_by_host(runtime, sent)};
}

Cost measure_arena(Runtime& runtime, std::size_t size_bytes, const Effort& effort) {
  // Every tensor is a bucket of its own; a step reduces them one after the other, so the buffers rotate by themselves.
  const std::size_t count = size_bytes / sizeof(float);
  const std::size_t tensor_count = buffers_for(size_bytes, effort);
  std::vector<engine::PlanTensor> tensors;
  for (std::size_t i = 0; i < tensor_count; ++i) {
    tensors.push_back({fmt::format("{}", i), DataType::kFloat32, {static_cast<std::int64_t>(count)}});
  }
  const auto plan = runtime.engine().make_plan(
      std::move(tensors), {.name = fmt::format("bench{}", size_bytes), .operation = ReduceOperation::kSum});
  const auto values = [&](std::size_t i) { return std::span(reinterpret_cast<float*>(plan->tensor(i).data()), count); };
  const auto fill = [&](float value) {
    for (std::size_t i = 0; i < tensor_count; ++i) std::ranges::fill(values(i), value);
  };
  const auto step = [&] {
    const auto start = SteadyClock::now();
    for (std::size_t i = 0; i < tensor_count; ++i) plan->mark_ready(i);
    plan->finish_step();
    return microseconds_since(start) / static_cast<double>(tensor_count);
  };
  fill(static_cast<float>(runtime.rank() + 1));
  static_cast<void>(step());
  for (std::size_t i = 0; i < tensor_count; ++i) {
    require_sum(runtime, values(i), fmt::format("an allreduce of {} bytes in the arena", size_bytes));
  }
  fill(0.0F);  // Whose sums stay finite however many rounds there are.
  const double first_us = step();
  const int rounds = agreed_rounds(runtime, first_us * static_cast<double>(tensor_count), effort);
  const std::uint64_t sent_before = bytes_sent(runtime);
  std::vector<double> times;
  for (int round = 0; round < rounds; ++round) times.push_back(step());
  const auto collectives = static_cast<double>(rounds) * static_cast<double>(tensor_count);
  const double sent = static_cast<double>(bytes_sent(runtime) - sent_before) / collectives;
  return {median(std::move(times)), add_up_by_host(runtime, sent)};
}

}  // namespace

nlohmann::json measure_allreduce(Runtime& runtime, const std::vector<std::size_t>& sizes_bytes, Paths paths,
                                 const Effort& effort) {
  nlohmann::json result = nlohmann::json::object();
  for (const std::size_t size_bytes : sizes_bytes) {
    const std::string size = std::to_string(size_bytes);
    const auto keep = [&](const char* path, const Cost& cost) {
      result[path][size] = cost.time_us;
      result["sent_bytes"][path][size] = cost.sent_bytes;
    };
    if (paths.tensor) keep("tensor", measure_tensors(runtime, size_bytes, effort));
    if (paths.arena) keep("arena", measure_arena(runtime, size_bytes, effort));
  }
  return result;
}

}  // namespace gyre::bench_rank
