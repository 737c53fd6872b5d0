// The engine with real ranks: any order of submission on any rank must give the right sums, and anything wrong must end
// in one message on every rank.
#include "gyre/engine/engine.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <future>
#include <latch>
#include <memory>
#include <thread>

#include "gyre/base/bytes.h"
#include "gyre/base/random.h"
#include "gyre/engine/metrics.h"
#include "gyre/engine/runtime.h"

namespace gyre::engine {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::MatchesRegex;

std::span<std::byte> bytes_of(std::vector<float>& values) { return std::as_writable_bytes(std::span(values)); }

Request allreduce(const std::string& name, std::vector<float>& values,
                  ReduceOperation operation = ReduceOperation::kSum) {
  Request request;
  request.name = name;
  request.signature = {.kind = OperationKind::kAllreduce,
                       .type = DataType::kFloat32,
                       .shape = {static_cast<std::int64_t>(values.size())},
                       .operation = operation};
  request.input = bytes_of(values);
  request.output = bytes_of(values);
  return request;
}

/// What a handle or call fails with, or "no error".
template <typename Call>
std::string failure_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return std::string(error_code_name(error.code())) + ": " + error.what();
  }
  return "no error";
}

RuntimeOptions options_with_fusion(std::size_t fusion_bytes) {
  RuntimeOptions options;
  options.engine.fusion_bytes = fusion_bytes;
  return options;
}

struct Setting {
  int size;
  std::size_t fusion_bytes;
  bool several_hosts;
};

std::vector<std::string> host_ids(const Setting& setting) {
  if (!setting.several_hosts) return {};
  std::vector<std::string> ids;
  for (int rank = 0; rank < setting.size; ++rank) ids.push_back("host" + std::to_string(rank % 2));
  return ids;
}

class EngineTest : public testing::TestWithParam<Setting> {};

TEST_P(EngineTest, operations_in_random_order_per_rank_give_exact_sums) {
  // Integers in floats add exactly, so every bucket composition must give the same answer.
  constexpr std::uint64_t kSeed = 7;
  constexpr int kTensors = 40;
  SCOPED_TRACE(kSeed);
  const int size = GetParam().size;
  const auto body = [&](Runtime& runtime) {
    for (std::uint64_t round = 0; round < 3; ++round) {
      std::vector<std::vector<float>> tensors;
      for (int t = 0; t < kTensors; ++t) {
        const auto count = Random(kSeed, static_cast<std::uint64_t>(t)).below(300);
        tensors.emplace_back(count, static_cast<float>(runtime.rank() + t));
      }
      std::vector<Handle> handles(kTensors);
      for (const std::uint64_t t : permutation(kTensors, kSeed + round, static_cast<std::uint64_t>(runtime.rank()))) {
        handles[t] = runtime.engine().submit(allreduce("t" + std::to_string(t), tensors[t]));
      }
      for (int t = 0; t < kTensors; ++t) {
        handles[static_cast<std::size_t>(t)].wait();
        const int sum = size * (size - 1) / 2 + size * t;
        const float expected = static_cast<float>(sum);
        for (const float value : tensors[static_cast<std::size_t>(t)]) ASSERT_EQ(value, expected) << t;
      }
    }
  };
  run_ranks(size, body, options_with_fusion(GetParam().fusion_bytes), host_ids(GetParam()));
}

TEST_P(EngineTest, ranks_that_are_far_ahead_of_each_other_in_opposite_orders_meet) {
  // Beyond some operations in flight a rank announces many at once, from another thread: none may be left behind.
  constexpr int kOperations = 1000;
  const int size = GetParam().size;
  const auto body = [&](Runtime& runtime) {
    std::vector<std::vector<float>> tensors(kOperations, std::vector<float>(2, 1.0F));
    std::vector<Handle> handles(kOperations);
    for (int i = 0; i < kOperations; ++i) {
      const int t = runtime.rank() % 2 == 0 ? i : kOperations - 1 - i;
      const auto index = static_cast<std::size_t>(t);
      handles[index] = runtime.engine().submit(allreduce("t" + std::to_string(t), tensors[index]));
    }
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      handles[t].wait();
      ASSERT_EQ(tensors[t][1], static_cast<float>(size)) << t;
    }
  };
  run_ranks(size, body, options_with_fusion(GetParam().fusion_bytes), host_ids(GetParam()));
}

TEST_P(EngineTest, synchronous_calls_agree_with_asynchronous_ones_in_any_mixture) {
  const int size = GetParam().size;
  const auto body = [&](Runtime& runtime) {
    for (int round = 0; round < 30; ++round) {
      std::vector<float> early(5, 1.0F);
      std::vector<float> late(3, static_cast<float>(runtime.rank()));
      // Some ranks make an asynchronous call of what the others call synchronously.
      const Handle handle = runtime.engine().submit(allreduce("early", early));
      if ((round + runtime.rank()) % 3 == 0) {
        runtime.engine().submit(allreduce("late", late)).wait();
      } else {
        static_cast<void>(runtime.engine().run(allreduce("late", late)));
      }
      handle.wait();
      ASSERT_EQ(early[4], static_cast<float>(size));
      const int sum_of_ranks = size * (size - 1) / 2;
      ASSERT_EQ(late[2], static_cast<float>(sum_of_ranks));
    }
  };
  run_ranks(size, body, options_with_fusion(GetParam().fusion_bytes), host_ids(GetParam()));
}

TEST_P(EngineTest, every_other_operation_gives_what_its_name_says) {
  const int size = GetParam().size;
  const auto body = [&](Runtime& runtime) {
    const int rank = runtime.rank();
    Engine& engine = runtime.engine();
    // Broadcast from the last rank.
    std::vector<float> state(1000, static_cast<float>(rank));
    Request broadcast = allreduce("state", state);
    broadcast.signature.kind = OperationKind::kBroadcast;
    broadcast.signature.root = size - 1;
    static_cast<void>(engine.run(broadcast));
    ASSERT_EQ(state[999], static_cast<float>(size - 1));
    // Allgather with rank + 1 rows of two.
    std::vector<float> rows(static_cast<std::size_t>(2 * (rank + 1)), static_cast<float>(rank));
    Request gather = allreduce("rows", rows);
    gather.signature.kind = OperationKind::kAllgather;
    gather.signature.shape = {rank + 1, 2};
    gather.output = {};
    const Result gathered = engine.run(gather);
    ASSERT_EQ(gathered.shape, (Shape{size * (size + 1) / 2, 2}));
    float last = 0;
    std::memcpy(&last, gathered.bytes.data() + gathered.bytes.size() - sizeof(last), sizeof(last));
    ASSERT_EQ(last, static_cast<float>(size - 1));
    // Reduce-scatter of size + 1 rows: rank 0 gets two.
    std::vector<float> input(static_cast<std::size_t>(size + 1), 1.0F);
    Request scatter = allreduce("scatter", input);
    scatter.signature.kind = OperationKind::kReduceScatter;
    const Result scattered = engine.run(scatter);
    ASSERT_EQ(scattered.shape, (Shape{rank == 0 ? 2 : 1}));
    ASSERT_EQ(*reinterpret_cast<const float*>(scattered.bytes.data()), static_cast<float>(size));
    // All-to-all: rank r sends r + 1 rows to everybody.
    std::vector<float> outgoing(static_cast<std::size_t>(size * (rank + 1)), static_cast<float>(rank));
    Request exchange = allreduce("exchange", outgoing);
    exchange.signature.kind = OperationKind::kAllToAll;
    exchange.signature.splits.assign(static_cast<std::size_t>(size), rank + 1);
    const Result exchanged = engine.run(exchange);
    ASSERT_EQ(exchanged.shape, (Shape{size * (size + 1) / 2}));
    ASSERT_EQ(exchanged.received_splits.back(), size);
    Request barrier;
    barrier.name = "barrier";
    static_cast<void>(engine.run(barrier));
  };
  run_ranks(size, body, options_with_fusion(GetParam().fusion_bytes), host_ids(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Settings, EngineTest,
                         testing::Values(Setting{1, 1 << 20, false}, Setting{2, 1 << 20, false}, Setting{3, 0, false},
                                         Setting{4, 1 << 12, false}, Setting{8, 1 << 20, false},
                                         Setting{4, 1 << 20, true}, Setting{5, 1 << 20, true}),
                         [](const auto& setting) {
                           return "ranks" + std::to_string(setting.param.size) + "_fusion" +
                                  std::to_string(setting.param.fusion_bytes) +
                                  (setting.param.several_hosts ? "_hosts" : "");
                         });

TEST(EngineFailureTest, a_mismatch_fails_on_every_rank_with_both_sides) {
  run_ranks(3, [](Runtime& runtime) {
    std::vector<float> values(runtime.rank() == 1 ? 5 : 4, 1.0F);
    const std::string failure = failure_of([&] { static_cast<void>(runtime.engine().run(allreduce("grad", values))); });
    EXPECT_THAT(failure, HasSubstr("MISMATCH: the ranks disagree about 'grad'"));
    EXPECT_THAT(failure, HasSubstr("allreduce of float32 [4] on ranks 0, 2; allreduce of float32 [5] on rank 1"));
    // The engine goes on.
    std::vector<float> good(4, 1.0F);
    static_cast<void>(runtime.engine().run(allreduce("grad", good)));
    EXPECT_EQ(good[0], 3.0F);
  });
}

/// What rank 0's tensor of one and the others' of eleven lead to; `line`: where a rank says it is.
void disagree(const std::function<int()>& line, bool numbered, const std::function<void(const std::string&)>& check) {
  RuntimeOptions options;
  options.engine.location = [&line] { return fmt::format("train.py:{} in main()", line()); };
  run_ranks(
      3,
      [&](Runtime& runtime) {
        std::vector<float> values(runtime.rank() == 0 ? 1 : 11, 1.0F);
        Request request = allreduce(numbered ? "collective 8 of process group '0'" : "grad", values);
        request.transient = numbered;
        check(failure_of([&] { static_cast<void>(runtime.engine().run(request)); }));
      },
      options);
}

// The line of each side shows which call met which other; where calls are told apart by a number alone, all of them
// look innocent, so the usual cause is named.
TEST(EngineFailureTest, a_mismatch_says_where_both_sides_are_and_of_numbered_calls_the_usual_cause) {
  for (const bool numbered : {false, true}) {
    std::atomic<int> line = 0;
    disagree([&line] { return line++; }, numbered,
             [&](const std::string& failure) {
               EXPECT_THAT(failure,
                           HasSubstr(numbered ? "disagree about collective 8 of process group '0': the shape differs: "
                                              : "disagree about 'grad': the shape differs: "));
               EXPECT_THAT(
                   failure,
                   MatchesRegex(".*allreduce of float32 .1. on rank 0; allreduce of float32 .11. on ranks 1, 2; "
                                "rank 0 is at train.py:[012] in main..; rank 1 is at train.py:[012] in .*"));
               EXPECT_EQ(failure.find("inside `if rank == 0:`") != std::string::npos, numbered) << failure;
             });
  }
}

// Then it is no call that others did not make.
TEST(EngineFailureTest, a_mismatch_at_one_line_of_all_ranks_shows_it_once_without_guesses) {
  disagree([] { return 7; }, true,
           [](const std::string& failure) {
             EXPECT_THAT(failure, EndsWith("on ranks 1, 2; ranks 0, 1 are at train.py:7 in main()"));
           });
}

TEST(EngineFailureTest, a_name_in_flight_cannot_be_used_again) {
  run_ranks(2, [](Runtime& runtime) {
    std::vector<float> one(4, 1.0F);
    std::vector<float> two(4, 1.0F);
    Request barrier;
    barrier.name = "everybody is here";
    static_cast<void>(runtime.engine().run(barrier));
    if (runtime.rank() == 0) {
      const Handle handle = runtime.engine().submit(allreduce("x", one));
      EXPECT_THAT(failure_of([&] { static_cast<void>(runtime.engine().submit(allreduce("x", two))); }),
                  HasSubstr("in flight already"));
      static_cast<void>(runtime.engine().submit(allreduce("go", two)));
      handle.wait();
    } else {
      runtime.engine().submit(allreduce("go", two)).wait();
      runtime.engine().submit(allreduce("x", one)).wait();
    }
    EXPECT_EQ(one[0], 2.0F);
  });
}

TEST(EngineFailureTest, wrong_arguments_are_found_before_anything_is_sent) {
  run_ranks(2, [](Runtime& runtime) {
    std::vector<float> values(4, 1.0F);
    const auto failure = [&](Request request) {
      return failure_of([&] { static_cast<void>(runtime.engine().submit(std::move(request))); });
    };
    Request request = allreduce("x", values);
    request.signature.shape = {5};
    EXPECT_THAT(failure(request), HasSubstr("INVALID_ARGUMENT: allreduce 'x': the input has 16 bytes"));
    request = allreduce("x", values);
    request.signature.kind = OperationKind::kBroadcast;
    request.signature.root = 2;
    EXPECT_THAT(failure(request), HasSubstr("root 2 is not a rank of this group of 2"));
    request = allreduce("x", values);
    request.signature.kind = OperationKind::kAllToAll;
    request.signature.splits = {1, 2};
    EXPECT_THAT(failure(request), HasSubstr("do not add up to the first dimension, 4"));
    request.signature.splits = {1, 1, 2};
    EXPECT_THAT(failure(request), HasSubstr("3 splits were given for 2 ranks"));
    request.signature.splits = {-1, 5};
    EXPECT_THAT(failure(request), HasSubstr("negative"));
    request.signature.splits = {2, 2};
    request.signature.expected_splits = {4};
    EXPECT_THAT(failure(request), HasSubstr("the expected splits [4] are not row counts for 2 ranks"));
  });
}

TEST(EngineFailureTest, a_rank_that_fails_fails_every_waiting_handle_with_its_name) {
  const std::string failure = failure_of([] {
    run_ranks(4, [](Runtime& runtime) {
      if (runtime.rank() == 2) throw Error(ErrorCode::kIo, "the disk is gone");
      std::vector<float> values(4, 1.0F);
      const std::string seen = failure_of([&] { runtime.engine().submit(allreduce("x", values)).wait(); });
      EXPECT_THAT(seen, HasSubstr("rank 2 failed: the disk is gone"));
      EXPECT_THAT(failure_of([&] { runtime.engine().submit(allreduce("y", values)).wait(); }),
                  HasSubstr("the disk is gone"));
    });
  });
  EXPECT_THAT(failure, HasSubstr("the disk is gone"));
}

TEST(EngineFailureTest, a_rank_that_leaves_early_fails_what_needs_it) {
  for (const int leaver : {0, 1, 2}) {
    std::latch others_failed(2);  // Until then nobody else leaves, or it might be named instead.
    run_ranks(3, [&](Runtime& runtime) {
      std::vector<float> values(4, 1.0F);
      static_cast<void>(runtime.engine().run(allreduce("together", values)));
      if (runtime.rank() == leaver) return;
      const std::string failure =
          failure_of([&] { static_cast<void>(runtime.engine().run(allreduce("alone", values))); });
      others_failed.arrive_and_wait();
      EXPECT_THAT(failure, HasSubstr("PEER_LEFT"));
      EXPECT_THAT(failure, HasSubstr("rank " + std::to_string(leaver)));
    });
  }
}

TEST(EngineFailureTest, a_stall_beyond_the_limit_ends_the_job_and_names_the_missing_rank) {
  RuntimeOptions options;
  options.engine.stall_warning = std::chrono::milliseconds(0);
  options.engine.stall_failure = std::chrono::milliseconds(200);
  run_ranks(
      3,
      [](Runtime& runtime) {
        std::vector<float> values(4, 1.0F);
        const std::string name = runtime.rank() == 1 ? "other" : "x";
        const std::string failure = failure_of([&] { runtime.engine().submit(allreduce(name, values)).wait(); });
        EXPECT_THAT(failure, HasSubstr("TIMEOUT"));
        EXPECT_THAT(failure, HasSubstr("missing"));
      },
      options);
}

TEST(EngineFailureTest, the_report_of_a_stall_says_where_the_ranks_are) {
  RuntimeOptions options;
  options.engine.stall_warning =
      std::chrono::milliseconds(50);  // Warned of first; the answers end nothing by themselves.
  options.engine.stall_failure = std::chrono::milliseconds(300);
  options.engine.location = [] { return std::string("train.py:7 in main()"); };
  run_ranks(
      2,
      [](Runtime& runtime) {
        std::vector<float> values(4, 1.0F);
        const std::string name = runtime.rank() == 1 ? "other" : "x";
        const std::string failure = failure_of([&] { runtime.engine().submit(allreduce(name, values)).wait(); });
        EXPECT_THAT(failure, HasSubstr("TIMEOUT"));
        EXPECT_THAT(failure, HasSubstr("at train.py:7 in main(); missing: rank"));
        EXPECT_THAT(failure, HasSubstr("now at train.py:7 in main(), whose last was"));
      },
      options);
}

TEST(EngineFailureTest, a_program_that_cannot_say_where_it_is_does_not_hold_up_the_report) {
  RuntimeOptions options;
  options.engine.stall_warning = std::chrono::milliseconds(0);
  options.engine.stall_failure = std::chrono::milliseconds(100);
  // Shared: the threads that wait outlive the engines.
  const auto never = std::make_shared<std::promise<void>>();
  const std::shared_future<void> released = never->get_future().share();
  options.engine.location = [released] {
    released.wait();
    return std::string("too late");
  };
  run_ranks(
      2,
      [](Runtime& runtime) {
        std::vector<float> values(4, 1.0F);
        const std::string name = runtime.rank() == 1 ? "other" : "x";
        const std::string failure = failure_of([&] { runtime.engine().submit(allreduce(name, values)).wait(); });
        EXPECT_THAT(failure, HasSubstr("not answering where it is"));
      },
      options);
  never->set_value();
}

double waiting_seconds(Runtime& runtime) {
  Costs costs;
  costs.add(runtime.engine().statistics());
  for (const metrics::Value& value : costs.values()) {
    if (value.name == "gyre/waiting_seconds") return value.value;
  }
  return -1;
}

TEST(EngineMetricsTest, the_wait_for_a_rank_that_announces_later_counts_while_it_lasts_and_afterwards) {
  constexpr std::chrono::milliseconds kLate{60};
  std::latch seen(1);
  run_ranks(2, [&](Runtime& runtime) {
    std::vector<float> values(3, 1.0F);
    if (runtime.rank() == 1) seen.wait();
    const auto begin = SteadyClock::now();
    const double before = waiting_seconds(runtime);
    const Handle handle = runtime.engine().submit(allreduce("x", values));
    if (runtime.rank() == 0) {
      std::this_thread::sleep_for(kLate);
      EXPECT_GE(waiting_seconds(runtime) - before, 0.055);
      seen.count_down();
    }
    handle.wait();
    const double waited = waiting_seconds(runtime) - before;
    const std::chrono::duration<double> passed = SteadyClock::now() - begin;
    if (runtime.rank() == 0) {
      EXPECT_GE(waited, 0.055);
    }
    EXPECT_LE(waited, passed.count());
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_EQ(waiting_seconds(runtime) - before, waited) << "nothing is in flight";
  });
}

TEST(EngineGroupTest, members_complete_together) {
  run_ranks(2, [](Runtime& runtime) {
    std::vector<float> a(3, 1.0F);
    std::vector<float> b(4, 2.0F);
    const std::vector<Handle> handles =
        runtime.engine().submit_group({allreduce("a", a), allreduce("b", b, ReduceOperation::kAverage)});
    for (const Handle& handle : handles) handle.wait();
    EXPECT_EQ(a[2], 2.0F);
    EXPECT_EQ(b[3], 2.0F);
  });
}

TEST(EngineGroupTest, what_one_rank_submits_alone_fails_the_whole_group_of_the_others) {
  for (const char* alone : {"a", "b"}) {
    run_ranks(3, [alone](Runtime& runtime) {
      std::vector<float> a(3, 1.0F);
      std::vector<float> b(3, 1.0F);
      std::vector<Handle> handles;
      if (runtime.rank() == 1) {
        handles = {runtime.engine().submit(allreduce(alone, a))};
      } else {
        handles = runtime.engine().submit_group({allreduce("a", a), allreduce("b", b)});
      }
      for (const Handle& handle : handles) {
        EXPECT_THAT(failure_of([&] { handle.wait(); }), HasSubstr("the group differs"));
      }
      runtime.engine().submit(allreduce("a", a)).wait();
      runtime.engine().submit(allreduce("b", b)).wait();
    });
  }
}

TEST(EngineGroupTest, whoever_learns_of_the_first_failure_can_submit_all_names_again) {
  run_ranks(4, [](Runtime& runtime) {
    std::vector<float> odd(runtime.rank() == 0 ? 2 : 3, 1.0F);
    std::vector<float> others(2, 1.0F);
    for (int round = 0; round < 50; ++round) {
      std::vector<Request> members = {allreduce("odd", odd)};
      for (int i = 0; i < 60; ++i) members.push_back(allreduce(fmt::format("other.{}", i), others));
      const std::vector<Handle> handles = runtime.engine().submit_group(std::move(members));
      ASSERT_THAT(failure_of([&] { handles.front().wait(); }), HasSubstr("shape")) << round;
    }
  });
}

}  // namespace
}  // namespace gyre::engine
