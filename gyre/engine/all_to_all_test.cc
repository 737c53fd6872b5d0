// Why: no rank sees who sends how much to whom in an all-to-all, so every way of finding that out must move the same
// bytes, and ranks that expect something else must all hear the same message and be able to go on.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "gyre/base/random.h"
#include "gyre/engine/engine.h"
#include "gyre/engine/runtime.h"

namespace gyre::engine {
namespace {

using testing::HasSubstr;

struct Place {
  int size;
  int hosts;
};

class AllToAllTest : public testing::TestWithParam<Place> {
 protected:
  void run(const std::function<void(Runtime&)>& body) {
    std::vector<std::string> ids;
    for (int rank = 0; rank < GetParam().size; ++rank) ids.push_back(fmt::format("host{}", rank % GetParam().hosts));
    run_ranks(GetParam().size, body, {}, std::move(ids));
  }
};

/// What rank `from` sends rank `to` in a round: all ranks draw the same numbers.
std::int64_t rows_between(std::uint64_t round, int from, int to, bool even) {
  Random random(round * 1009, static_cast<std::uint64_t>(even ? 0 : from * 64 + to));
  return static_cast<std::int64_t>(random.below(4));
}

Request exchange(const std::string& name, const std::vector<std::int32_t>& values) {
  Request request;
  request.name = name;
  request.signature = {
      .kind = OperationKind::kAllToAll, .type = DataType::kInt32, .shape = {static_cast<std::int64_t>(values.size())}};
  request.input = std::as_bytes(std::span(values));
  return request;
}

TEST_P(AllToAllTest, rows_arrive_however_the_ranks_know_their_counts) {
  run([](Runtime& runtime) {
    const int size = runtime.size();
    const int rank = runtime.rank();
    for (std::uint64_t round = 0; round < 40; ++round) {
      SCOPED_TRACE(round);
      Random random(round);
      const bool even = random.below(4) == 0;
      const bool some_expect = random.below(3) != 0;
      const std::uint64_t silent_rank = random.below(static_cast<std::uint64_t>(2 * size));
      std::vector<std::int32_t> values;
      std::vector<std::int32_t> expected;
      Request request = exchange("x", values);
      for (int other = 0; other < size; ++other) {
        const std::int64_t sent = rows_between(round, rank, other, even);
        const std::int64_t received = rows_between(round, other, rank, even);
        values.insert(values.end(), static_cast<std::size_t>(sent), rank * 1000 + other);
        expected.insert(expected.end(), static_cast<std::size_t>(received), other * 1000 + rank);
        if (!even) request.signature.splits.push_back(sent);
        if (some_expect && silent_rank != static_cast<std::uint64_t>(rank)) {
          request.signature.expected_splits.push_back(received);
        }
      }
      request.signature.shape = {static_cast<std::int64_t>(values.size())};
      request.input = std::as_bytes(std::span(values));
      const Handle handle = round % 2 == 0 ? runtime.engine().submit(request) : runtime.engine().run_or_submit(request);
      handle.wait();
      const Result result = handle.take_result();
      ASSERT_EQ(result.received_splits.size(), static_cast<std::size_t>(size));
      for (int other = 0; other < size; ++other) {
        EXPECT_EQ(result.received_splits[static_cast<std::size_t>(other)], rows_between(round, other, rank, even));
      }
      ASSERT_EQ(result.bytes.size(), expected.size() * sizeof(std::int32_t));
      EXPECT_TRUE(std::equal(result.bytes.begin(), result.bytes.end(), std::as_bytes(std::span(expected)).begin()));
    }
  });
}

TEST_P(AllToAllTest, ranks_that_expect_other_rows_all_hear_who_and_go_on) {
  run([](Runtime& runtime) {
    const auto size = static_cast<std::size_t>(runtime.size());
    const int last = runtime.size() - 1;
    for (int round = 0; round < 5; ++round) {
      const std::vector<std::int32_t> values(size, runtime.rank());
      Request request = exchange("wrong", values);
      request.signature.splits.assign(size, 1);
      request.signature.expected_splits.assign(size, 1);
      if (runtime.rank() == last) request.signature.expected_splits[1] = 3;
      try {
        runtime.engine().run(request);
        ADD_FAILURE() << "the last rank expects three";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kMismatch);
        EXPECT_THAT(error.what(), HasSubstr(fmt::format("rank 1 sends 1 elements to rank {}, which expects 3", last)));
        EXPECT_THAT(error.what(), HasSubstr("rank 1 sends [1, 1"));
      }
      request.signature.expected_splits.assign(size, 1);
      EXPECT_EQ(runtime.engine().run(request).received_splits, std::vector<std::int64_t>(size, 1));
    }
  });
}

TEST_P(AllToAllTest, a_group_refuses_expectations_before_anything_is_sent) {
  run([](Runtime& runtime) {
    const std::vector<std::int32_t> values(static_cast<std::size_t>(runtime.size()));
    Request request = exchange("x", values);
    request.signature.expected_splits.assign(values.size(), 1);
    EXPECT_THROW(runtime.engine().submit_group({request}), Error);
  });
}

INSTANTIATE_TEST_SUITE_P(Places, AllToAllTest,
                         testing::Values(Place{2, 1}, Place{3, 3}, Place{5, 2}, Place{8, 1}, Place{7, 7}),
                         [](const auto& information) {
                           return fmt::format("ranks{}_hosts{}", information.param.size, information.param.hosts);
                         });

}  // namespace
}  // namespace gyre::engine
