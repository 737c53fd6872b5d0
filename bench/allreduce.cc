// One rank of the allreduce benchmark, for both ways into the engine: ordinary tensors through synchronous calls
// (path "tensor") and tensors that live in the arena through a plan (path "arena"). Rank 0 prints one JSON object.
// Started by bench/allreduce.py, which runs the peers beside it.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstring>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/engine/runtime.h"

namespace {

using namespace gyre;
using namespace gyre::engine;

/// Buffers rotate over at least so much memory, twice a large last-level cache, so that none is found in it again.
constexpr std::size_t kRotationBytes = std::size_t{64} << 20;
constexpr std::size_t kMostBuffers = 1024;
constexpr int kFewestRounds = 5;
constexpr int kMostRounds = 2000;
constexpr double kSecondsPerSize = 0.6;

std::size_t buffers_for(std::size_t size_bytes) {
  return std::clamp<std::size_t>(kRotationBytes / std::max<std::size_t>(size_bytes, 1), 2, kMostBuffers);
}

double microseconds_since(SteadyClock::time_point start) {
  return std::chrono::duration<double, std::micro>(SteadyClock::now() - start).count();
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

Request sum_of(const std::string& name, std::vector<float>& values) {
  Request request;
  request.name = name;
  request.signature = {.kind = OperationKind::kAllreduce,
                       .type = DataType::kFloat32,
                       .shape = {static_cast<std::int64_t>(values.size())}};
  request.input = std::as_bytes(std::span(values));
  request.output = std::as_writable_bytes(std::span(values));
  return request;
}

/// How often to repeat so that a size takes about kSecondsPerSize; rank 0's opinion counts.
int agreed_rounds(Runtime& runtime, double once_us) {
  std::vector<float> rounds{static_cast<float>(
      std::clamp(kSecondsPerSize * 1e6 / std::max(once_us, 0.1), double{kFewestRounds}, double{kMostRounds}))};
  Request request = sum_of("rounds", rounds);
  request.signature.kind = OperationKind::kBroadcast;
  static_cast<void>(runtime.engine().run(std::move(request)));
  return static_cast<int>(rounds[0]);
}

void require(bool right, const std::string& what) {
  if (!right) throw Error(ErrorCode::kInternal, "wrong answer: " + what);
}

double measure_tensors(Runtime& runtime, std::size_t size_bytes) {
  const std::size_t count = size_bytes / sizeof(float);
  std::vector<std::vector<float>> buffers(buffers_for(size_bytes), std::vector<float>(count, 1.0F));
  const auto once = [&](std::size_t round) {
    const auto start = SteadyClock::now();
    static_cast<void>(runtime.engine().run(sum_of("bench", buffers[round % buffers.size()])));
    return microseconds_since(start);
  };
  for (std::size_t round = 0; round < 3; ++round) static_cast<void>(once(round));
  const int rounds = agreed_rounds(runtime, once(3));
  std::vector<double> times;
  for (int round = 0; round < rounds; ++round) times.push_back(once(static_cast<std::size_t>(round)));
  std::vector<float> check(count, static_cast<float>(runtime.rank() + 1));
  static_cast<void>(runtime.engine().run(sum_of("bench", check)));
  const float expected = static_cast<float>(runtime.size() * (runtime.size() + 1)) / 2;
  require(std::all_of(check.begin(), check.end(), [&](float value) { return value == expected; }), "tensor");
  return median(std::move(times));
}

double measure_arena(Runtime& runtime, std::size_t size_bytes) {
  // Every tensor is a bucket of its own; a step reduces them one after the other, so the buffers rotate by themselves.
  const std::size_t count = size_bytes / sizeof(float);
  const std::size_t tensor_count = buffers_for(size_bytes);
  std::vector<PlanTensor> tensors;
  for (std::size_t i = 0; i < tensor_count; ++i) {
    tensors.push_back({fmt::format("{}", i), DataType::kFloat32, {static_cast<std::int64_t>(count)}});
  }
  const auto plan = runtime.engine().make_plan(
      std::move(tensors), {.name = fmt::format("bench{}", size_bytes), .operation = ReduceOperation::kSum});
  const auto step = [&](float value) {
    for (std::size_t i = 0; i < tensor_count && value != 0; ++i) {
      auto* data = reinterpret_cast<float*>(plan->tensor(i).data());
      std::fill(data, data + count, value);
    }
    const auto start = SteadyClock::now();
    for (std::size_t i = 0; i < tensor_count; ++i) plan->mark_ready(i);
    plan->finish_step();
    return microseconds_since(start) / static_cast<double>(tensor_count);
  };
  step(static_cast<float>(runtime.rank() + 1));
  const float expected = static_cast<float>(runtime.size() * (runtime.size() + 1)) / 2;
  for (std::size_t i = 0; i < tensor_count; ++i) {
    const auto* data = reinterpret_cast<const float*>(plan->tensor(i).data());
    require(std::all_of(data, data + count, [&](float value) { return value == expected; }), "arena");
  }
  const double first_us = step(1e-30F);
  const int rounds = agreed_rounds(runtime, first_us * static_cast<double>(tensor_count));
  std::vector<double> times;
  for (int round = 0; round < rounds; ++round) times.push_back(step(0));
  return median(std::move(times));
}

/// Bytes per second that `thread_count` threads copy together, each between its own buffers outside the cache.
double measure_memcpy(int thread_count) {
  std::vector<std::thread> threads;
  std::vector<double> rates(static_cast<std::size_t>(thread_count));
  for (double& rate : rates) {
    threads.emplace_back([&rate] {
      const std::vector<char> from(kRotationBytes, 1);
      std::vector<char> to(kRotationBytes, 2);
      std::vector<double> times;
      for (int round = 0; round < 9; ++round) {
        const auto start = SteadyClock::now();
        std::memcpy(to.data(), from.data(), from.size());
        times.push_back(microseconds_since(start));
      }
      rate = static_cast<double>(kRotationBytes) / median(std::move(times)) * 1e6;
    });
  }
  for (std::thread& thread : threads) thread.join();
  double sum = 0;
  for (const double rate : rates) sum += rate;
  return sum;
}

void run(const std::vector<std::size_t>& sizes) {
  const auto runtime = Runtime::start_from_environment();
  nlohmann::json result = {{"tensor", nlohmann::json::object()}, {"arena", nlohmann::json::object()}};
  for (const std::size_t size_bytes : sizes) {
    result["tensor"][std::to_string(size_bytes)] = measure_tensors(*runtime, size_bytes);
    result["arena"][std::to_string(size_bytes)] = measure_arena(*runtime, size_bytes);
  }
  if (runtime->rank() == 0) {
    const int threads = std::min<int>(runtime->size(), static_cast<int>(std::thread::hardware_concurrency()));
    result["memcpy_bytes_per_second"] = measure_memcpy(threads);
    std::cout << result.dump() << std::endl;
  }
  // Nobody leaves while rank 0 still measures the bound: the others would be counted as idle load.
  Request barrier;
  barrier.name = "end";
  runtime->engine().submit(std::move(barrier)).wait();
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("One rank of the allreduce benchmark; start it with bench/allreduce.py");
  std::vector<std::size_t> sizes;
  app.add_option("--sizes", sizes, "Sizes in bytes, multiples of 4")->required()->delimiter(',');
  CLI11_PARSE(app, argc, argv);
  try {
    run(sizes);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "gyre-bench-allreduce: " << error.what() << std::endl;
    return 1;
  }
}
