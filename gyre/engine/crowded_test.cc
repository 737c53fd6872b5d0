// More ranks than cores: whoever waits must give the core away, or the rank it waits for never gets one. Counted, not
// timed: eight ranks on two cores.
#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <thread>

#include "gyre/base/clock.h"
#include "gyre/engine/runtime.h"

namespace gyre::engine {
namespace {

constexpr int kRanks = 8;
/// A wait looks and yields so often at most before it sleeps (kMostYields in shared_room.cc).
constexpr std::uint64_t kMostYieldsPerWait = 200;
constexpr std::chrono::seconds kPatience{60};

/// The calling thread, and those it starts, run on two cores while it lives.
class OnTwoCores {
 public:
  OnTwoCores() {
    EXPECT_EQ(::sched_getaffinity(0, sizeof before_, &before_), 0);
    cpu_set_t two;
    CPU_ZERO(&two);
    for (int core = 0, taken = 0; core < CPU_SETSIZE && taken < 2; ++core) {
      if (!CPU_ISSET(core, &before_)) continue;
      CPU_SET(core, &two);
      ++taken;
    }
    EXPECT_EQ(::sched_setaffinity(0, sizeof two, &two), 0);
  }
  ~OnTwoCores() { ::sched_setaffinity(0, sizeof before_, &before_); }
  OnTwoCores(const OnTwoCores&) = delete;
  OnTwoCores& operator=(const OnTwoCores&) = delete;

 private:
  cpu_set_t before_{};
};

group::LaneCounters counters_of(Runtime& runtime, const std::string& lane) {
  for (const LaneStatistics& statistics : runtime.engine().statistics().lanes) {
    if (statistics.lane == lane) return statistics.counters;
  }
  ADD_FAILURE() << "no lane " << lane;
  return {};
}

std::span<float> floats(Plan& plan) {
  const auto bytes = plan.tensor(0);
  return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
}

TEST(CrowdedTest, ranks_that_wait_for_a_late_one_fall_asleep_in_its_plan) {
  const OnTwoCores two_cores;
  std::array<std::atomic<Runtime*>, kRanks> runtimes{};
  run_ranks(kRanks, [&](Runtime& runtime) {
    const auto plan = runtime.engine().make_plan({{"w", DataType::kFloat32, {100'000}}}, {.name = "p"});
    const auto rank = static_cast<std::size_t>(runtime.rank());
    runtimes[rank] = &runtime;
    constexpr int kSteps = 5;
    for (int step = 0; step < kSteps; ++step) {
      std::fill(floats(*plan).begin(), floats(*plan).end(), static_cast<float>(runtime.rank()));
      if (step == 0 && rank == 0) {
        // All others have contributed, and wait in shared memory: each of them must come to sleep.
        const Deadline deadline = Deadline::after(kPatience);
        for (std::size_t other = 1; other < kRanks; ++other) {
          while (runtimes[other] == nullptr || counters_of(*runtimes[other], "plan 'p'").futex_sleeps == 0) {
            ASSERT_FALSE(deadline.passed()) << "rank " << other << " does not sleep";
            std::this_thread::yield();
          }
        }
      }
      plan->mark_ready(0);
      plan->finish_step();
      ASSERT_EQ(floats(*plan)[99'999], 3.5F) << "in step " << step;
    }
    // Two waits for each bucket; on several hosts, or in smaller pieces, there would be more.
    EXPECT_LE(counters_of(runtime, "plan 'p'").yields, kMostYieldsPerWait * 2 * kSteps);
    // Nobody leaves, and destroys what rank 0 looks at, before all are through.
    Request request{.name = "end", .signature = {.kind = OperationKind::kBarrier}, .input = {}, .output = {}};
    static_cast<void>(runtime.engine().run(request));
  });
}

TEST(CrowdedTest, synchronous_calls_of_eight_ranks_on_two_cores_come_to_their_end) {
  const OnTwoCores two_cores;
  run_ranks(kRanks, [&](Runtime& runtime) {
    constexpr int kCalls = 60;
    for (int call = 0; call < kCalls; ++call) {
      std::vector<float> values(static_cast<std::size_t>(1 + 5000 * (call % 2)), 1.0F);
      const auto bytes = std::as_writable_bytes(std::span(values));
      const Request request{.name = "call",
                            .signature = {.kind = OperationKind::kAllreduce,
                                          .type = DataType::kFloat32,
                                          .shape = {static_cast<std::int64_t>(values.size())}},
                            .input = bytes,
                            .output = bytes};
      static_cast<void>(runtime.engine().run(request));
      ASSERT_EQ(values.back(), static_cast<float>(kRanks)) << "in call " << call;
    }
    // Whether the ranks met or the coordinator ordered the calls is luck; what they waited inside them is bounded.
    std::uint64_t collectives = 0;
    std::uint64_t yields = 0;
    for (const char* const lane : {"open", "board"}) {
      collectives += counters_of(runtime, lane).collectives;
      yields += counters_of(runtime, lane).yields;
    }
    EXPECT_EQ(collectives, static_cast<std::uint64_t>(kCalls));
    EXPECT_LE(yields, kMostYieldsPerWait * kCalls);
  });
}

}  // namespace
}  // namespace gyre::engine
