// Operations that something else carries out (the library of a device, which knows no names): the engine must give
// them one order on all ranks, and find what the ranks disagree about, as for its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "gyre/base/thread_annotations.h"
#include "gyre/engine/runtime.h"

namespace gyre::engine {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Request elsewhere(const std::string& name, std::int64_t rows, OperationKind kind = OperationKind::kAllreduce) {
  Request request;
  request.name = name;
  request.signature = {.kind = kind, .type = DataType::kFloat32, .shape = {rows, 2}, .elsewhere = true};
  return request;
}

Agreement agreed_on(const Handle& handle) {
  handle.wait();
  return handle.take_result().agreement;
}

std::string failure_of(const Handle& handle) {
  try {
    handle.wait();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(ElsewhereTest, all_ranks_number_them_alike_whatever_the_order_of_their_calls) {
  constexpr int kOperations = 50;
  Mutex mutex;
  std::vector<std::map<std::string, std::uint64_t>> numbers;
  run_ranks(3, [&](Runtime& runtime) {
    std::vector<std::string> names;
    for (int i = 0; i < kOperations; ++i) names.push_back("operation " + std::to_string(i));
    std::mt19937 random(static_cast<unsigned>(runtime.rank()));
    std::shuffle(names.begin(), names.end(), random);
    std::map<std::string, Handle> handles;
    for (const std::string& name : names) handles.emplace(name, runtime.engine().submit(elsewhere(name, 5)));
    std::map<std::string, std::uint64_t> own;
    for (const auto& [name, handle] : handles) own[name] = agreed_on(handle).number;
    EXPECT_EQ(runtime.engine().wait_for_agreements(kOperations - 1, std::chrono::minutes(1)), kOperations);
    const MutexLock lock(mutex);
    numbers.push_back(own);
  });
  EXPECT_EQ(numbers[0], numbers[1]);
  EXPECT_EQ(numbers[0], numbers[2]);
  std::vector<std::uint64_t> all;
  for (const auto& [name, number] : numbers[0]) all.push_back(number);
  std::ranges::sort(all);
  for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], i + 1);
}

TEST(ElsewhereTest, what_has_a_later_number_is_done_later) {
  // Whoever carries them out in order relies on it.
  run_ranks(2, [](Runtime& runtime) {
    for (std::uint64_t count = 0; count < 30; ++count) {
      const Handle first = runtime.engine().submit(elsewhere("first", 1));
      const Handle second = runtime.engine().submit(elsewhere("second", 1));
      while (runtime.engine().wait_for_agreements(2 * count + 1, std::chrono::minutes(1)) <= 2 * count + 1) {
      }
      EXPECT_TRUE(first.done() && second.done());
    }
  });
}

TEST(ElsewhereTest, the_rows_of_every_rank_are_known) {
  run_ranks(3, [](Runtime& runtime) {
    const Request request = elsewhere("rows", runtime.rank() * 2, OperationKind::kAllgather);
    EXPECT_THAT(agreed_on(runtime.engine().submit(request)).rows, ElementsAre(0, 2, 4));
    const Request alike = elsewhere("alike", 3, OperationKind::kAllgather);
    EXPECT_THAT(agreed_on(runtime.engine().submit(alike)).rows, ElementsAre(3, 3, 3));
  });
}

TEST(ElsewhereTest, a_disagreement_is_an_error_on_all_ranks) {
  run_ranks(2, [](Runtime& runtime) {
    const Handle shapes = runtime.engine().submit(elsewhere("x", 3 + runtime.rank()));
    EXPECT_THAT(failure_of(shapes), HasSubstr("the shape differs: allreduce of float32 [3, 2] on rank 0"));
    std::vector<std::byte> memory(24);
    Request request = elsewhere("x", 3);
    if (runtime.rank() == 1) {
      request.signature.elsewhere = false;
      request.input = memory;
      request.output = memory;
    }
    EXPECT_THAT(
        failure_of(runtime.engine().submit(request)),
        HasSubstr("what exchanges the tensor differs: allreduce of float32 [3, 2] on a device, by the device's "
                  "own library on rank 0; allreduce of float32 [3, 2] in host memory, by Gyre (of a tensor on the CPU, "
                  "or in a call with tensors of several devices) on rank 1"));
  });
}

TEST(ElsewhereTest, they_say_when_a_rank_has_joined) {
  run_ranks(2, [](Runtime& runtime) {
    EXPECT_FALSE(agreed_on(runtime.engine().submit(elsewhere("before", 3))).some_have_joined);
    if (runtime.rank() == 0) {
      EXPECT_TRUE(agreed_on(runtime.engine().submit(elsewhere("after", 3))).some_have_joined);
    }
    runtime.engine().join();
    const Agreement last = agreed_on(runtime.engine().submit(elsewhere("last", 3)));
    EXPECT_FALSE(last.some_have_joined);
    EXPECT_EQ(last.number, 3U);
  });
}

TEST(ElsewhereTest, a_rank_that_leaves_is_told_from_a_job_that_fails) {
  // The library goes on with what it has been given if a rank leaves, and must end if one has died.
  run_ranks(2, [](Runtime& runtime) {
    agreed_on(runtime.engine().submit(elsewhere("x", 3)));
    if (runtime.rank() == 0) return;
    EXPECT_EQ(runtime.engine().wait_for_agreements(0, std::chrono::minutes(1)), 1U);
    EXPECT_EQ(runtime.engine().wait_for_agreements(1, std::chrono::minutes(1)), std::nullopt);
  });
  std::barrier both_have_joined(2);
  std::atomic<int> told = 0;
  const auto failing = [&](Runtime& runtime) {
    both_have_joined.arrive_and_wait();
    if (runtime.rank() == 0) runtime.group().abort(Error(ErrorCode::kAborted, "a reason"));
    try {
      runtime.engine().wait_for_agreements(0, std::chrono::minutes(1));
    } catch (const Error&) {
      ++told;
      throw;
    }
  };
  EXPECT_THROW(run_ranks(2, failing), Error);
  EXPECT_EQ(told, 2);
}

TEST(ElsewhereTest, one_rank_agrees_with_itself) {
  run_ranks(1, [](Runtime& runtime) {
    EXPECT_EQ(agreed_on(runtime.engine().submit(elsewhere("x", 3))).number, 1U);
    EXPECT_THAT(agreed_on(runtime.engine().submit(elsewhere("x", 3, OperationKind::kAllgather))).rows, ElementsAre(3));
    EXPECT_EQ(runtime.engine().wait_for_agreements(1, std::chrono::minutes(1)), 2U);
    runtime.engine().shutdown();
    EXPECT_EQ(runtime.engine().wait_for_agreements(2, std::chrono::minutes(1)), std::nullopt);
  });
}

}  // namespace
}  // namespace gyre::engine
