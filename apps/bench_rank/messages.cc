// One message at a time between two ranks, there and back, of one size after the other; all pairs at the same time.
#include <fmt/format.h>

#include <algorithm>
#include <barrier>
#include <cstring>
#include <thread>

#include "apps/bench_rank/benches.h"
#include "gyre/base/error.h"
#include "gyre/group/messages/point_to_point.h"

namespace gyre::bench_rank {

namespace {

using engine::Runtime;

constexpr auto kType = static_cast<std::uint8_t>(engine::DataType::kUint8);
constexpr std::size_t kWarmUp = 3;

/// A rank and the one with which it exchanges messages. With ranks on several hosts the two are on different ones.
class Pair {
 public:
  Pair(Runtime& runtime, group::PointToPoint& messages)
      : messages_(messages),
        first_(runtime.rank() < runtime.size() / 2),
        partner_((runtime.rank() + runtime.size() / 2) % runtime.size()) {}

  int partner() const { return partner_; }
  /// There and back.
  void exchange(std::span<const std::byte> ours, std::span<std::byte> theirs) {
    if (first_) {
      messages_.send(partner_, 0, kType, ours).wait();
      messages_.receive(partner_, 0, kType, theirs).wait();
    } else {
      messages_.receive(partner_, 0, kType, theirs).wait();
      messages_.send(partner_, 0, kType, ours).wait();
    }
  }

 private:
  group::PointToPoint& messages_;
  bool first_;
  int partner_;
};

double measure_size(Runtime& runtime, Pair& pair, std::size_t size_bytes, const Effort& effort) {
  const std::size_t count = buffers_for(2 * size_bytes, effort);
  const auto mark = [](int rank) { return static_cast<std::byte>(rank + 1); };
  std::vector<Buffer> ours;
  std::vector<Buffer> theirs;
  for (std::size_t i = 0; i < count; ++i) {
    ours.emplace_back(size_bytes, mark(runtime.rank()));
    theirs.emplace_back(size_bytes, std::byte{0});
  }
  const auto once = [&](std::size_t round) {
    const auto start = SteadyClock::now();
    pair.exchange(ours[round % count].bytes(), theirs[round % count].bytes());
    return microseconds_since(start) / 2;
  };
  for (std::size_t round = 0; round < kWarmUp; ++round) static_cast<void>(once(round));
  const int rounds = agreed_rounds(runtime, 2 * once(kWarmUp), effort);
  std::vector<double> times;
  for (int round = 0; round < rounds; ++round) times.push_back(once(static_cast<std::size_t>(round)));
  const std::size_t used = std::min(count, static_cast<std::size_t>(rounds));
  for (std::size_t i = 0; i < used; ++i) {
    if (std::ranges::all_of(theirs[i].bytes(), [&](std::byte value) { return value == mark(pair.partner()); }))
      continue;
    throw Error(ErrorCode::kInternal, fmt::format("a wrong answer: a message of {} bytes", size_bytes));
  }
  return median(std::move(times));
}

}  // namespace

nlohmann::json measure_messages(Runtime& runtime, group::PointToPoint& messages,
                                const std::vector<std::size_t>& sizes_bytes, const Effort& effort) {
  if (runtime.size() % 2 != 0) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("{} ranks do not make pairs", runtime.size()));
  }
  Pair pair(runtime, messages);
  nlohmann::json result = nlohmann::json::object();
  for (const std::size_t size_bytes : sizes_bytes) {
    meet(runtime);
    result[std::to_string(size_bytes)] = measure_size(runtime, pair, size_bytes, effort);
  }
  meet(runtime);
  return {{"tensor", result}};
}

double measure_copies(int thread_count, std::size_t buffer_bytes) {
  constexpr int kRounds = 9;
  std::barrier together(thread_count);
  std::vector<double> times_us(static_cast<std::size_t>(thread_count));
  std::vector<std::thread> threads;
  for (double& time_us : times_us) {
    threads.emplace_back([&] {
      const Buffer source(buffer_bytes, std::byte{1});
      const Buffer target(buffer_bytes, std::byte{0});
      std::vector<double> times;
      for (int round = 0; round < kRounds; ++round) {
        together.arrive_and_wait();
        const auto start = SteadyClock::now();
        std::memcpy(target.bytes().data(), source.bytes().data(), buffer_bytes);
        times.push_back(microseconds_since(start));
      }
      time_us = median(std::move(times));
    });
  }
  for (std::thread& thread : threads) thread.join();
  return static_cast<double>(buffer_bytes) / *std::ranges::max_element(times_us) * 1e6;
}

}  // namespace gyre::bench_rank
