// A plan carries an optimizer's gradients: steps without negotiation, whatever each rank has or lacks.
#include "gyre/engine/plan.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstring>
#include <latch>
#include <thread>

#include "gyre/base/random.h"
#include "gyre/base/thread_test_support.h"
#include "gyre/engine/runtime.h"

namespace gyre::engine {
namespace {

using testing::HasSubstr;

std::vector<PlanTensor> example(std::int64_t count) {
  std::vector<PlanTensor> tensors;
  for (std::int64_t i = 0; i < count; ++i) {
    tensors.push_back({"w" + std::to_string(i), DataType::kFloat32, {i * 37 % 11, 5}});
  }
  return tensors;
}

std::span<float> floats(Plan& plan, std::size_t index) {
  const auto bytes = plan.tensor(index);
  return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
}

template <typename Call>
std::string failure_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return std::string(error_code_name(error.code())) + ": " + error.what();
  }
  return "no error";
}

class PlanTest : public testing::TestWithParam<int> {};

TEST_P(PlanTest, steps_average_what_the_ranks_hand_in_and_count_zero_for_what_they_do_not) {
  constexpr std::uint64_t kSeed = 11;
  SCOPED_TRACE(kSeed);
  const int size = GetParam();
  RuntimeOptions options;
  options.engine.fusion_bytes = 600;
  const auto body = [&](Runtime& runtime) {
    const auto plan = runtime.engine().make_plan(example(23), {.name = "p", .operation = ReduceOperation::kSum});
    for (std::uint64_t step = 0; step < 5; ++step) {
      for (const std::uint64_t index : permutation(23, kSeed + step, static_cast<std::uint64_t>(runtime.rank()))) {
        if ((index + step + static_cast<std::uint64_t>(runtime.rank())) % 4 == 0) continue;  // No gradient here.
        const auto place = floats(*plan, index);
        const auto own = static_cast<float>(runtime.rank() + 1);
        if (step % 2 == 0) {
          std::fill(place.begin(), place.end(), own);
          plan->mark_ready(index);
        } else {
          const std::vector<float> contribution(place.size(), own);
          plan->contribute(index, std::as_bytes(std::span(contribution)));
        }
      }
      plan->finish_step();
      EXPECT_EQ(plan->step(), step + 1);
      for (std::uint64_t index = 0; index < 23; ++index) {
        float expected = 0;
        for (int rank = 0; rank < size; ++rank) {
          if ((index + step + static_cast<std::uint64_t>(rank)) % 4 != 0) expected += static_cast<float>(rank + 1);
        }
        for (const float value : floats(*plan, index)) ASSERT_EQ(value, expected) << index << " in step " << step;
      }
    }
  };
  run_ranks(size, body, options);
  std::vector<std::string> hosts;
  for (int rank = 0; rank < size; ++rank) hosts.push_back("h" + std::to_string(rank / 2));
  run_ranks(size, body, options, hosts);
}

INSTANTIATE_TEST_SUITE_P(Sizes, PlanTest, testing::Values(1, 2, 3, 4, 8));

TEST(PlanFailureTest, different_plans_fail_on_every_rank_with_both_sides) {
  run_ranks(3, [](Runtime& runtime) {
    auto tensors = example(4);
    if (runtime.rank() == 2) tensors[3].shape = {9};
    const std::string failure =
        failure_of([&] { static_cast<void>(runtime.engine().make_plan(tensors, {.name = "p"})); });
    EXPECT_THAT(failure, HasSubstr("MISMATCH: the ranks disagree about gradient exchange 'p'"));
    EXPECT_THAT(failure, HasSubstr("'w3' float32 [1, 5] on rank 0; 'w3' float32 [9] on rank 2"));
  });
}

TEST(PlanFailureTest, a_tensor_handed_in_twice_is_refused) {
  run_ranks(2, [](Runtime& runtime) {
    const auto plan = runtime.engine().make_plan(example(3), {.name = "p"});
    plan->mark_ready(1);
    EXPECT_THAT(failure_of([&] { plan->mark_ready(1); }), HasSubstr("'w1' was contributed twice in one step"));
    plan->finish_step();
  });
}

TEST(PlanFailureTest, a_rank_that_leaves_ends_the_steps_of_the_others) {
  for (const int leaver : {0, 1}) {
    std::latch others_failed(2);
    run_ranks(3, [&](Runtime& runtime) {
      const auto plan = runtime.engine().make_plan(example(3), {.name = "p"});
      plan->finish_step();
      if (runtime.rank() == leaver) return;
      const std::string failure = failure_of([&] { plan->finish_step(); });
      others_failed.arrive_and_wait();
      EXPECT_THAT(failure, HasSubstr("rank " + std::to_string(leaver)));
      EXPECT_THAT(failure_of([&] { plan->mark_ready(0); }), HasSubstr("rank " + std::to_string(leaver)));
    });
  }
}

TEST(PlanFailureTest, a_plan_outlives_the_shutdown_of_its_engine) {
  run_ranks(2, [](Runtime& runtime) {
    const auto plan = runtime.engine().make_plan(example(3), {.name = "p"});
    for (float& value : floats(*plan, 1)) value = 3;
    plan->mark_ready(1);
    plan->finish_step();
    runtime.shutdown();
    EXPECT_EQ(floats(*plan, 1)[0], 3.0F);
    EXPECT_THAT(failure_of([&] { plan->mark_ready(0); }), HasSubstr("SHUT_DOWN"));
  });
}

TEST(PlanOrderTest, the_fullest_order_is_the_one_in_which_buckets_run) {
  RuntimeOptions options;
  options.engine.fusion_bytes = 0;  // A bucket per tensor.
  for (const bool several_hosts : {false, true}) {
    run_ranks(
        3,
        [](Runtime& runtime) {
          // Rank 0 had no gradient in its first step, rank 2 fewer than rank 1.
          const std::vector<std::vector<std::size_t>> learnt = {{}, {4, 1, 3}, {0, 1}};
          PlanOptions plan_options{.name = "p"};
          plan_options.ready_order = learnt[static_cast<std::size_t>(runtime.rank())];
          const auto plan = runtime.engine().make_plan(example(5), plan_options);
          for (const std::size_t index : {4, 1, 3, 0, 2}) plan->mark_ready(index);
          plan->finish_step();
          EXPECT_EQ(plan->statistics().total.overtaken_buckets, 0U);
          for (const std::size_t index : {0, 1, 2, 3, 4}) plan->mark_ready(index);
          plan->finish_step();
          EXPECT_EQ(plan->statistics().total.overtaken_buckets, 4U);
        },
        options, several_hosts ? std::vector<std::string>{"a", "b", "a"} : std::vector<std::string>{});
  }
}

TEST(PlanOrderTest, an_order_that_cannot_be_is_refused_on_the_rank_that_gave_it) {
  run_ranks(1, [](Runtime& runtime) {
    PlanOptions options{.name = "p"};
    options.ready_order = {0, 0};
    EXPECT_THAT(failure_of([&] { static_cast<void>(runtime.engine().make_plan(example(2), options)); }),
                HasSubstr("INVALID_ARGUMENT"));
  });
}

TEST(PlanOrderTest, plans_are_compared_before_they_are_made) {
  run_ranks(2, [](Runtime& runtime) {
    runtime.engine().check_plan(example(4), {.name = "p"});
    const auto own = example(4 + runtime.rank());
    EXPECT_THAT(failure_of([&] { runtime.engine().check_plan(own, {.name = "p"}); }),
                HasSubstr(fmt::format("4 tensors, average, prescale 1, postscale 1, buckets of {} bytes, on the wire "
                                      "native on rank 0; 5 tensors",
                                      kOneHostBucketBytes)));
    EXPECT_EQ(runtime.engine().statistics().plans.size(), 0U);
  });
}

TEST(PlanOrderTest, threads_of_a_rank_make_their_plans_in_any_order) {
  constexpr int kThreads = 3;
  const auto one_rank = [](Runtime& runtime) {
    for (int round = 0; round < 4; ++round) {
      std::vector<std::thread> threads;
      for (int i = 0; i < kThreads; ++i) {
        const int number = (i + runtime.rank()) % kThreads;  // Each rank begins with another one.
        threads.emplace_back([&runtime, number, round] {
          const auto plan = runtime.engine().make_plan(
              example(5), {.name = fmt::format("{}.{}", number, round), .operation = ReduceOperation::kSum});
          for (int step = 0; step < 3; ++step) {
            for (std::size_t tensor = 0; tensor < 5; ++tensor) {
              std::ranges::fill(floats(*plan, tensor), static_cast<float>(number + 1));
              plan->mark_ready(tensor);
            }
            plan->finish_step();
            const auto expected = static_cast<float>((number + 1) * runtime.size());
            for (const float value : floats(*plan, 1)) EXPECT_EQ(value, expected);
          }
        });
        std::this_thread::yield();
      }
      for (std::thread& thread : threads) thread.join();
    }
  };
  run_ranks(3, one_rank);
  run_ranks(3, one_rank, {}, {"a", "b", "b"});
}

TEST(PlanWireTest, error_feedback_gives_back_what_rounding_takes_between_hosts) {
  constexpr int kSteps = 40;
  constexpr float kValue = 1.0F + 1.0F / 1024;  // bfloat16 holds 1 and 1 + 1/128.
  const auto sum_of_steps = [&](Runtime& runtime, bool error_feedback) {
    PlanOptions options{.name = "p", .operation = ReduceOperation::kAverage, .wire = WireFormat::kBfloat16};
    options.error_feedback = error_feedback;
    const auto plan = runtime.engine().make_plan({{"w", DataType::kFloat32, {1000}}}, options);
    double sum = 0;
    for (int step = 0; step < kSteps; ++step) {
      for (float& value : floats(*plan, 0)) value = kValue;
      plan->mark_ready(0);
      plan->finish_step();
      sum += static_cast<double>(floats(*plan, 0)[777]);
    }
    return sum;
  };
  const double exact = kSteps * static_cast<double>(kValue);
  run_ranks(2,
            [&](Runtime& runtime) {
              EXPECT_EQ(sum_of_steps(runtime, false), kSteps) << "rounded down, step for step";
              EXPECT_NEAR(sum_of_steps(runtime, true), exact, 1.0 / 128);
            },
            {}, {"a", "b"});
  run_ranks(2, [&](Runtime& runtime) {
    for (const bool error_feedback : {false, true}) {
      EXPECT_EQ(sum_of_steps(runtime, error_feedback), exact) << "on one host nothing travels, and nothing is rounded";
    }
  });
}

TEST(PlanStatisticsTest, say_what_each_bucket_is_and_count_its_steps) {
  RuntimeOptions options;
  options.engine.fusion_bytes = 1 << 14;
  run_ranks(
      2,
      [](Runtime& runtime) {
        const std::vector<PlanTensor> tensors = {{"big", DataType::kFloat32, {4096}},
                                                 {"small", DataType::kFloat64, {3}}};
        const auto plan = runtime.engine().make_plan(tensors, {.name = "p"});
        for (int step = 0; step < 3; ++step) {
          plan->mark_ready(1);  // The second bucket first.
          plan->mark_ready(0);
          plan->finish_step();
        }
        plan->finish_step();
        const PlanStatistics statistics = plan->statistics();
        EXPECT_EQ(statistics.name, "p");
        EXPECT_EQ(statistics.steps, 4U);
        EXPECT_EQ(statistics.total.overtaken_buckets, 3U);
        EXPECT_EQ(statistics.total.missing_tensors, 2U);
        ASSERT_EQ(statistics.buckets.size(), 2U);
        EXPECT_EQ(statistics.buckets[0].size_bytes, 4096U * sizeof(float));
        EXPECT_EQ(statistics.buckets[0].algorithm, collectives::Algorithm::kSharedArena);
        EXPECT_THAT(statistics.buckets[0].reason, HasSubstr("one host"));
        EXPECT_EQ(statistics.buckets[1].algorithm, collectives::Algorithm::kMailbox);
        for (const BucketStatistics& bucket : statistics.buckets) {
          EXPECT_LE(bucket.ready, bucket.start);
          EXPECT_LE(bucket.start, bucket.end);
        }
        EXPECT_LE(statistics.total.hidden, statistics.total.exchange);

        const EngineStatistics engine = runtime.engine().statistics();
        ASSERT_EQ(engine.plans.size(), 1U);
        ASSERT_EQ(engine.lanes.size(), 3U);
        EXPECT_EQ(engine.lanes[2].lane, "plan 'p'");
        EXPECT_EQ(engine.lanes[2].counters.collectives.value(), 4U * 2U);
        EXPECT_EQ(engine.lanes[2].counters.bytes_sent.value(), 0U);
        EXPECT_GT(engine.lanes[2].counters.reducing_ns.value(), 0U);
      },
      options);
}

TEST(PlanTimingTest, a_waiter_can_look_up_and_go_on) {
  run_ranks(2, [](Runtime& runtime) {
    const auto plan = runtime.engine().make_plan(example(3), {.name = "p"});
    std::vector<float> one(1, 1.0F);
    Request request{.name = "the other waits",
                    .signature = {.kind = OperationKind::kAllreduce, .type = DataType::kFloat32, .shape = {1}},
                    .input = std::as_bytes(std::span(one)),
                    .output = std::as_writable_bytes(std::span(one))};
    if (runtime.rank() == 0) {
      EXPECT_FALSE(plan->finish_step_for(std::chrono::milliseconds(5)));
      static_cast<void>(runtime.engine().run(request));
      plan->finish_step();
    } else {
      static_cast<void>(runtime.engine().run(request));
      plan->finish_step();
    }
  });
}

TEST(PlanFailureTest, a_rank_that_does_not_come_to_the_end_of_a_step_is_named) {
  RuntimeOptions options;
  options.engine.stall_warning = std::chrono::milliseconds(50);
  options.engine.stall_failure = std::chrono::milliseconds(300);
  options.engine.location = [] { return std::string("train.py:7 in main()"); };
  std::latch failed(3);
  run_ranks(
      3,
      [&](Runtime& runtime) {
        const auto plan = runtime.engine().make_plan(example(3), {.name = "weights"});
        plan->finish_step();
        if (runtime.rank() != 1) {
          const std::string failure = failure_of([&] { plan->finish_step(); });
          EXPECT_THAT(failure, HasSubstr("TIMEOUT: step 2 of gradient exchange 'weights' has waited"));
          EXPECT_THAT(failure, HasSubstr("on ranks 0, 2, at train.py:7 in main(); missing: rank 1 (host"));
          EXPECT_THAT(failure, HasSubstr("now at train.py:7"));
        }
        failed.arrive_and_wait();
      },
      options);
}

// A rank that has left its group can abort it no more, and there is no common reason to report.
TEST(PlanFailureTest, a_step_after_all_have_left_fails_with_its_own_cause) {
  std::barrier together(2);
  run_ranks(2, [&](Runtime& runtime) {
    const auto plan = runtime.engine().make_plan(example(3), {.name = "weights"});
    plan->finish_step();
    together.arrive_and_wait();
    runtime.group().leave();
    together.arrive_and_wait();
    if (runtime.rank() == 0) {
      EXPECT_THAT(failure_of([&] { plan->finish_step(); }), HasSubstr("PEER_LEFT"));
    }
    together.arrive_and_wait();
  });
}

// By default there is no limit for stalls, and a stopped process would keep the others waiting for ever.
TEST(PlanFailureTest, a_collective_has_a_limit_of_its_own) {
  RuntimeOptions options;
  options.engine.collective_timeout = std::chrono::milliseconds(100);
  std::latch failed(2);
  run_ranks(
      2,
      [&](Runtime& runtime) {
        const auto plan = runtime.engine().make_plan(example(3), {.name = "weights"});
        plan->finish_step();
        if (runtime.rank() == 0) {
          const std::string failure = failure_of([&] { plan->finish_step(); });
          EXPECT_THAT(failure, HasSubstr("TIMEOUT"));
          EXPECT_THAT(failure, HasSubstr("rank 1"));
        }
        failed.arrive_and_wait();
      },
      options);
}

/// One float, to be summed over the ranks.
struct Metric {
  std::vector<float> value = std::vector<float>(1, 1.0F);
  Request request() {
    return {.name = "metric",
            .signature = {.kind = OperationKind::kAllreduce, .type = DataType::kFloat32, .shape = {1}},
            .input = std::as_bytes(std::span(value)),
            .output = std::as_writable_bytes(std::span(value))};
  }
};

// The engine must not remember a plan that could not be made.
TEST(PlanFailureTest, a_plan_that_gets_no_thread_leaves_nothing_behind) {
  run_ranks(1, [](Runtime& runtime) {
    {
      const NoThreads limit;
      EXPECT_THAT(failure_of([&] { static_cast<void>(runtime.engine().make_plan(example(3), {.name = "p"})); }),
                  HasSubstr("RESOURCE_EXHAUSTED: the system gives no thread for plan 'p'"));
    }
    EXPECT_TRUE(runtime.engine().statistics().plans.empty());
    EXPECT_EQ(runtime.engine().join(), 0);  // Looks at all plans.
    const auto plan = runtime.engine().make_plan(example(3), {.name = "p"});
    plan->finish_step();
  });
}

// Without a limit for stalls, the default, such a job would hang for ever.
TEST(PlanFailureTest, a_rank_that_waits_for_another_operation_before_it_brings_its_gradients_fails_all_by_name) {
  RuntimeOptions options;
  options.engine.deadlock_check = std::chrono::milliseconds(50);
  options.engine.only_known_threads = true;  // The other ranks are threads of this process.
  options.engine.location = [] { return std::string("train.py:7 in main()"); };
  std::latch failed(3);
  run_ranks(
      3,
      [&](Runtime& runtime) {
        const auto plan = runtime.engine().make_plan(example(3), {.name = "weights"});
        plan->finish_step();
        Metric metric;
        const std::string failure = failure_of([&] {
          if (runtime.rank() == 1) static_cast<void>(runtime.engine().run(metric.request()));
          plan->finish_step();
        });
        EXPECT_THAT(failure, HasSubstr("MISMATCH: deadlock: "));
        EXPECT_THAT(
            failure,
            HasSubstr("ranks 0, 2 wait for the end of step 2 of gradient exchange 'weights', which needs rank 1, at "
                      "train.py:7 in main(); "));
        EXPECT_THAT(failure, HasSubstr("rank 1 waits for allreduce 'metric', which needs ranks 0, 2, at train.py:7 in "
                                       "main(); "));
        failed.arrive_and_wait();
      },
      options);
}

// What looks similar and ends by itself: the others have submitted the operation before they wait, and a third rank is
// slow; or the rank has brought all its gradients.
TEST(PlanFailureTest, a_rank_that_waits_for_a_slow_one_is_left_in_peace) {
  RuntimeOptions options;
  options.engine.deadlock_check = std::chrono::milliseconds(20);
  std::atomic<int> questions = 0;
  options.engine.location = [&questions] {
    ++questions;
    questions.notify_all();
    return std::string();
  };
  const auto await_two_checks = [&questions] {
    constexpr int kRanks = 3;
    const int before = questions;
    for (int seen = before; seen < before + 2 * kRanks; seen = questions) questions.wait(seen);
  };
  std::barrier together(3);
  run_ranks(
      3,
      [&](Runtime& runtime) {
        const auto plan = runtime.engine().make_plan(example(3), {.name = "weights"});
        plan->finish_step();
        for (const bool brings_gradients : {false, true}) {
          together.arrive_and_wait();
          Metric metric;
          Handle handle;
          if (runtime.rank() == 2) await_two_checks();
          if (runtime.rank() == 1 && brings_gradients) {
            for (std::size_t i = 0; i < plan->tensor_count(); ++i) plan->mark_ready(i);
          }
          if (runtime.rank() != 0 || !brings_gradients) handle = runtime.engine().submit(metric.request());
          if (runtime.rank() == 1) handle.wait();
          plan->finish_step();
          if (runtime.rank() == 0 && brings_gradients) handle = runtime.engine().submit(metric.request());
          handle.wait();
          EXPECT_EQ(metric.value[0], 3.0F);
        }
      },
      options);
}

}  // namespace
}  // namespace gyre::engine
