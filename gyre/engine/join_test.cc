// Ranks with unequal amounts of data: who runs out joins, and the others must neither wait for it nor be disturbed.
#include "gyre/engine/join.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "gyre/engine/runtime.h"

namespace gyre::engine {
namespace {

using testing::HasSubstr;

Request reduction(const std::string& name, std::vector<float>& values,
                  ReduceOperation operation = ReduceOperation::kSum) {
  Request request;
  request.name = name;
  request.signature = {.kind = OperationKind::kAllreduce,
                       .type = DataType::kFloat32,
                       .shape = {static_cast<std::int64_t>(values.size())},
                       .operation = operation};
  request.input = std::as_bytes(std::span(values));
  request.output = std::as_writable_bytes(std::span(values));
  return request;
}

Request gathering(const std::string& name, OperationKind kind, const std::vector<float>& values) {
  Request request;
  request.name = name;
  request.signature = {.kind = kind, .type = DataType::kFloat32, .shape = {static_cast<std::int64_t>(values.size())}};
  request.input = std::as_bytes(std::span(values));
  return request;
}

std::vector<float> floats_of(const Result& result) {
  std::vector<float> values(result.bytes.size() / sizeof(float));
  std::memcpy(values.data(), result.bytes.data(), result.bytes.size());
  return values;
}

float reduced(Runtime& runtime, const std::string& name, float value, ReduceOperation operation) {
  std::vector<float> values(777, value);
  runtime.engine().run(reduction(name, values, operation));
  return values[776];
}

struct Setting {
  int size;
  bool several_hosts;
};

class JoinTest : public testing::TestWithParam<Setting> {
 protected:
  static void run(const std::function<void(Runtime&)>& body) {
    std::vector<std::string> hosts;
    for (int rank = 0; rank < GetParam().size && GetParam().several_hosts; ++rank) {
      hosts.push_back(rank % 2 == 0 ? "a" : "b");
    }
    run_ranks(GetParam().size, body, {}, hosts);
  }
};

TEST_P(JoinTest, reductions_go_on_without_those_who_have_joined) {
  run([](Runtime& runtime) {
    const auto size = static_cast<float>(runtime.size());
    for (int round = 0; round < 2; ++round) {
      // Rank r has r batches; what comes in batch b are the ranks above b.
      for (int batch = 0; batch < runtime.rank(); ++batch) {
        const auto present = size - 1.0F - static_cast<float>(batch);
        const std::string name = std::to_string(batch);
        EXPECT_EQ(reduced(runtime, "sum" + name, 2.0F, ReduceOperation::kSum), 2.0F * present);
        EXPECT_FLOAT_EQ(reduced(runtime, "average" + name, 2.0F, ReduceOperation::kAverage), 2.0F * present / size);
        EXPECT_EQ(reduced(runtime, "min" + name, 2.0F, ReduceOperation::kMin), 2.0F);
        EXPECT_EQ(reduced(runtime, "max" + name, -2.0F, ReduceOperation::kMax), -2.0F);
        EXPECT_EQ(reduced(runtime, "product" + name, 1.0F, ReduceOperation::kProduct), 1.0F);
      }
      EXPECT_EQ(runtime.engine().join(), runtime.size() - 1);
      EXPECT_EQ(reduced(runtime, "after", 1.0F, ReduceOperation::kSum), size);
    }
  });
}

TEST_P(JoinTest, averages_may_be_over_the_contributors) {
  run([](Runtime& runtime) {
    if (runtime.rank() == 0) {
      EXPECT_NE(runtime.engine().join({.divide_by_contributors = true}), 0);
    } else {
      const auto rank = static_cast<float>(runtime.rank());
      const auto size = static_cast<float>(runtime.size());
      // Until the news has come that rank 0 has joined nothing can be ready, so this is not a matter of timing.
      EXPECT_FLOAT_EQ(reduced(runtime, "x", rank, ReduceOperation::kAverage), size / 2);
      runtime.engine().join();
    }
    EXPECT_FLOAT_EQ(reduced(runtime, "y", 3.0F, ReduceOperation::kAverage), 3.0F);
  });
}

TEST_P(JoinTest, steps_of_plans_go_on_also_when_they_interleave) {
  run([](Runtime& runtime) {
    const auto first = runtime.engine().make_plan({{"a", DataType::kFloat32, {500}}},
                                                  {.name = "first", .operation = ReduceOperation::kSum});
    const auto second = runtime.engine().make_plan({{"b", DataType::kFloat32, {70}}},
                                                   {.name = "second", .operation = ReduceOperation::kSum});
    const auto give = [](Plan& plan) {
      const auto place = plan.tensor(0);
      auto* values = reinterpret_cast<float*>(place.data());
      std::fill(values, values + place.size() / sizeof(float), 1.0F);
      plan.mark_ready(0);
      return values;
    };
    for (int round = 0; round < 2; ++round) {
      for (int step = 0; step < 2 * runtime.rank(); ++step) {
        const int present = runtime.size() - 1 - step / 2;
        float* a = give(*first);
        float* b = give(*second);
        second->finish_step();
        EXPECT_EQ(b[0], present);
        EXPECT_EQ(reduced(runtime, "loss", 1.0F, ReduceOperation::kSum), present);
        first->finish_step();
        EXPECT_EQ(a[499], present);
      }
      EXPECT_EQ(runtime.engine().join(), runtime.size() - 1);
      EXPECT_EQ(first->step(), static_cast<std::uint64_t>(2 * (runtime.size() - 1) * (round + 1)));
    }
  });
}

TEST_P(JoinTest, other_operations_are_refused_unless_it_takes_part_in_all) {
  run([](Runtime& runtime) {
    const int size = runtime.size();
    const std::vector<float> own(2, static_cast<float>(runtime.rank()));
    for (const bool every : {false, true}) {
      if (runtime.rank() == 1) {
        EXPECT_EQ(runtime.engine().join({.every_operation = every}), 0);
        continue;
      }
      if (every) {
        const auto gathered = floats_of(runtime.engine().run(gathering("g", OperationKind::kAllgather, own)));
        EXPECT_EQ(gathered.size(), 2U * (size - 1));
        EXPECT_EQ(gathered.back(), size == 2 ? 0.0F : static_cast<float>(size - 1));
        std::vector<float> values(5, static_cast<float>(runtime.rank()));
        Request broadcast = reduction("b", values);
        broadcast.signature.kind = OperationKind::kBroadcast;
        runtime.engine().run(broadcast);
        EXPECT_EQ(values[4], 0.0F);
        const std::vector<float> rows(static_cast<std::size_t>(2 * size), 1.0F);
        const auto share = floats_of(runtime.engine().run(gathering("r", OperationKind::kReduceScatter, rows)));
        EXPECT_EQ(share, std::vector<float>(2, static_cast<float>(size - 1)));
        const Result arrived = runtime.engine().run(gathering("t", OperationKind::kAllToAll, rows));
        EXPECT_EQ(arrived.received_splits[1], 0);
        EXPECT_EQ(arrived.received_splits[0], 2);
      } else {
        try {
          runtime.engine().run(gathering("g", OperationKind::kAllgather, own));
          ADD_FAILURE() << "rank 1 has no rows";
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
          EXPECT_THAT(error.what(), HasSubstr("rank 1 has joined"));
        }
      }
      // Rank 0 joins last: its reduction shows how many others have not joined yet.
      while (runtime.rank() == 0 && reduced(runtime, "left", 1.0F, ReduceOperation::kSum) > 1.0F) {
      }
      if (runtime.rank() > 1) reduced(runtime, "left", 1.0F, ReduceOperation::kSum);
      EXPECT_EQ(runtime.engine().join({.every_operation = every}), 0);
    }
  });
}

TEST_P(JoinTest, a_rank_that_leaves_without_joining_ends_the_wait) {
  run([](Runtime& runtime) {
    if (runtime.rank() == 0) return;
    try {
      runtime.engine().join();
      ADD_FAILURE() << "rank 0 has not joined";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kPeerLeft) << error.what();
      EXPECT_THAT(error.what(), HasSubstr("rank 0"));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Settings, JoinTest, testing::Values(Setting{2, false}, Setting{4, false}, Setting{3, true}),
                         [](const auto& information) {
                           return "ranks" + std::to_string(information.param.size) +
                                  (information.param.several_hosts ? "_hosts" : "");
                         });

TEST(JoinOfOneTest, a_rank_alone_has_joined_at_once) {
  run_ranks(1, [](Runtime& runtime) { EXPECT_EQ(runtime.engine().join(), 0); });
}

TEST(JoinOfOneTest, a_step_that_has_begun_must_end_first) {
  run_ranks(1, [](Runtime& runtime) {
    const auto plan = runtime.engine().make_plan({{"a", DataType::kFloat32, {5}}}, {.name = "p"});
    plan->mark_ready(0);
    EXPECT_THROW(runtime.engine().join(), Error);
    plan->finish_step();
    EXPECT_EQ(runtime.engine().join(), 0);
  });
}

}  // namespace
}  // namespace gyre::engine
