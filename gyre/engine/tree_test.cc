// Why: large groups negotiate through other ranks. Whatever these pass on, and whatever happens to them, ranks must see
// the results and messages that they see without them.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <latch>

#include "gyre/base/random.h"
#include "gyre/engine/engine.h"
#include "gyre/engine/join.h"
#include "gyre/engine/runtime.h"

namespace gyre::engine {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct Place {
  int size;
  int hosts;
  int arity;
};

class TreeTest : public testing::TestWithParam<Place> {
 protected:
  void run(const std::function<void(Runtime&)>& body, const EngineOptions& engine = {}) {
    std::vector<std::string> ids;
    for (int rank = 0; rank < GetParam().size; ++rank) ids.push_back(fmt::format("host{}", rank % GetParam().hosts));
    RuntimeOptions options;
    options.engine = engine;
    options.engine.negotiation_arity = GetParam().arity;
    run_ranks(GetParam().size, body, options, std::move(ids));
  }
  int last() const { return GetParam().size - 1; }
};

Request allreduce(const std::string& name, std::vector<float>& values) {
  Request request;
  request.name = name;
  request.signature = {.kind = OperationKind::kAllreduce,
                       .type = DataType::kFloat32,
                       .shape = {static_cast<std::int64_t>(values.size())}};
  request.input = std::as_bytes(std::span(values));
  request.output = std::as_writable_bytes(std::span(values));
  return request;
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

TEST_P(TreeTest, operations_in_random_order_give_exact_sums) {
  constexpr std::uint64_t kTensors = 60;
  constexpr std::uint64_t kSeed = 5;
  SCOPED_TRACE(kSeed);
  run([&](Runtime& runtime) {
    const int size = runtime.size();
    const int sum_of_ranks = size * (size - 1) / 2;
    for (std::uint64_t round = 0; round < 3; ++round) {
      std::vector<std::vector<float>> tensors(kTensors, std::vector<float>(3, static_cast<float>(runtime.rank())));
      std::vector<Handle> handles(kTensors);
      for (const std::uint64_t t : permutation(kTensors, kSeed + round, static_cast<std::uint64_t>(runtime.rank()))) {
        handles[t] = runtime.engine().submit(allreduce(fmt::format("t{}", t), tensors[t]));
      }
      for (std::uint64_t t = 0; t < kTensors; ++t) {
        handles[t].wait();
        ASSERT_EQ(tensors[t][2], static_cast<float>(sum_of_ranks));
      }
    }
  });
}

TEST_P(TreeTest, a_mismatch_names_the_ranks_of_both_sides) {
  run([&](Runtime& runtime) {
    std::vector<float> values(runtime.rank() == last() ? 5 : 4);
    EXPECT_THAT(failure_of([&] { runtime.engine().submit(allreduce("x", values)).wait(); }),
                AllOf(HasSubstr("MISMATCH"), HasSubstr("float32 [4] on ranks 0, 1"),
                      HasSubstr(fmt::format("float32 [5] on rank {}", last()))));
    std::vector<float> again(2, 1.0F);
    runtime.engine().submit(allreduce("x", again)).wait();
    EXPECT_EQ(again[0], static_cast<float>(runtime.size()));
  });
}

TEST_P(TreeTest, a_stall_that_ends_the_job_names_the_missing_rank) {
  EngineOptions options;
  options.stall_failure = std::chrono::milliseconds(300);
  options.location = [] { return std::string("train.py:4"); };
  std::latch failed(last());
  run(
      [&](Runtime& runtime) {
        if (runtime.rank() == last()) return failed.wait();
        std::vector<float> values(4);
        EXPECT_THAT(failure_of([&] { runtime.engine().submit(allreduce("x", values)).wait(); }),
                    AllOf(HasSubstr("TIMEOUT"), HasSubstr("ready on ranks 0, 1"),
                          HasSubstr(fmt::format("missing: rank {} ", last())), HasSubstr("now at train.py:4")));
        failed.count_down();
      },
      options);
}

TEST_P(TreeTest, reductions_go_on_without_ranks_that_have_joined) {
  run([&](Runtime& runtime) {
    for (int round = 0; round < 3; ++round) {
      for (int step = 0; step < 4 + 4 * (runtime.rank() % 3); ++step) {
        std::vector<float> values(1, 1.0F);
        runtime.engine().submit(allreduce("x", values)).wait();
        EXPECT_GE(values[0], 1.0F);
        if (step < 4) {
          EXPECT_EQ(values[0], static_cast<float>(runtime.size()));
        }
      }
      EXPECT_GE(runtime.engine().join(), 0);
    }
  });
}

TEST_P(TreeTest, an_inner_rank_that_leaves_first_is_named_to_all_that_need_it) {
  const int inner = 1;  // In every place of this test it speaks for others.
  std::latch failed(last());
  run([&](Runtime& runtime) {
    std::vector<float> values(4, 1.0F);
    runtime.engine().submit(allreduce("x", values)).wait();
    if (runtime.rank() == inner) return;
    EXPECT_THAT(failure_of([&] { runtime.engine().submit(allreduce("y", values)).wait(); }),
                AllOf(HasSubstr("PEER_LEFT"), HasSubstr(fmt::format("rank {} has shut down", inner))));
    failed.count_down();
    if (runtime.rank() == 0) failed.wait();  // The coordinator ends with it.
  });
}

TEST_P(TreeTest, an_inner_rank_that_fails_fails_all_with_its_reason) {
  const std::string failure = failure_of([&] {
    run([&](Runtime& runtime) {
      if (runtime.rank() == 1) throw Error(ErrorCode::kIo, "the disk is gone");
      std::vector<float> values(4, 1.0F);
      EXPECT_THAT(failure_of([&] { runtime.engine().submit(allreduce("x", values)).wait(); }),
                  HasSubstr("rank 1 failed: the disk is gone"));
    });
  });
  EXPECT_THAT(failure, HasSubstr("the disk is gone"));
}

INSTANTIATE_TEST_SUITE_P(Places, TreeTest,
                         testing::Values(Place{5, 5, 1}, Place{9, 3, 1}, Place{12, 6, 2}, Place{7, 1, 1}),
                         [](const auto& information) {
                           return fmt::format("ranks{}_hosts{}_arity{}", information.param.size,
                                              information.param.hosts, information.param.arity);
                         });

TEST(TreeOfDefaultTest, forty_ranks_on_ten_hosts_sum_gather_and_end) {
  std::vector<std::string> ids;
  for (int rank = 0; rank < 40; ++rank) ids.push_back(fmt::format("host{}", rank / 4));
  const auto body = [](Runtime& runtime) {
    for (int round = 0; round < 5; ++round) {
      std::vector<float> values(4, 1.0F);
      runtime.engine().run(allreduce("x", values));
      EXPECT_EQ(values[3], 40.0F);
      Request gather = allreduce("g", values);
      gather.signature.kind = OperationKind::kAllgather;
      gather.output = {};
      gather.signature.shape = {4 - runtime.rank() % 2 * 2};
      gather.input = gather.input.first(static_cast<std::size_t>(gather.signature.shape[0]) * sizeof(float));
      EXPECT_EQ(runtime.engine().run(gather).shape, Shape{120});
    }
  };
  run_ranks(40, body, {}, std::move(ids));
}

}  // namespace
}  // namespace gyre::engine
