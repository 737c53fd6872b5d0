// Messages between two ranks: whatever the order of sends and receives, bytes must arrive where the tags say, and what
// can never arrive must fail on both sides with a reason.
#include "gyre/engine/point_to_point.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "gyre/base/random.h"
#include "gyre/engine/runtime.h"

namespace gyre::engine {
namespace {

using testing::HasSubstr;

std::span<std::byte> bytes_of(std::vector<std::int32_t>& values) { return std::as_writable_bytes(std::span(values)); }

std::vector<std::int32_t> values_of(int sender, int number, std::size_t count) {
  std::vector<std::int32_t> values(count);
  std::iota(values.begin(), values.end(), sender * 1'000'000 + number * 1000);
  return values;
}

std::string failure_of(const Handle& handle) {
  try {
    handle.wait();
  } catch (const Error& error) {
    return std::string(error_code_name(error.code())) + ": " + error.what();
  }
  return "no error";
}

TEST(PointToPointTest, every_rank_sends_to_every_other_in_any_order) {
  constexpr std::uint64_t kSeed = 11;
  constexpr int kMessages = 30;
  SCOPED_TRACE(kSeed);
  const auto length = [](int number) { return Random(kSeed, static_cast<std::uint64_t>(number)).below(400'000); };
  run_ranks(3, [&](Runtime& runtime) {
    PointToPoint messages(runtime.group());
    std::vector<std::vector<std::int32_t>> memory;
    std::vector<std::vector<std::int32_t>> expected;
    std::vector<Handle> handles;
    memory.reserve(6 * static_cast<std::size_t>(kMessages));
    const auto send = [&](int peer, int number) {
      memory.push_back(values_of(runtime.rank(), number, length(number)));
      expected.push_back(memory.back());
      handles.push_back(messages.send(peer, number, DataType::kInt32, bytes_of(memory.back())));
    };
    const auto receive = [&](int peer, int number) {
      memory.emplace_back(length(number));
      expected.push_back(values_of(peer, number, length(number)));
      handles.push_back(messages.receive(peer, number, DataType::kInt32, bytes_of(memory.back())));
    };
    for (int number = 0; number < kMessages; ++number) {
      for (int peer = 0; peer < runtime.size(); ++peer) {
        if (peer == runtime.rank()) continue;
        // Receives are posted backwards, so that nearly every message waits for a while on one of the two sides.
        send(peer, number);
        receive(peer, kMessages - 1 - number);
      }
    }
    for (const Handle& handle : handles) handle.wait();
    for (std::size_t i = 0; i < memory.size(); ++i) ASSERT_EQ(memory[i], expected[i]) << i;
  });
}

TEST(PointToPointTest, equal_tags_meet_in_the_order_of_sending) {
  run_ranks(2, [](Runtime& runtime) {
    PointToPoint messages(runtime.group());
    std::vector<std::vector<std::int32_t>> memory;
    std::vector<Handle> handles;
    for (int number = 0; number < 20; ++number) {
      memory.push_back(runtime.rank() == 0 ? values_of(0, number, 5) : std::vector<std::int32_t>(5));
    }
    for (auto& values : memory) {
      handles.push_back(runtime.rank() == 0 ? messages.send(1, 7, DataType::kInt32, bytes_of(values))
                                            : messages.receive(0, 7, DataType::kInt32, bytes_of(values)));
    }
    for (const Handle& handle : handles) handle.wait();
    for (int number = 0; number < 20; ++number) {
      EXPECT_EQ(memory[static_cast<std::size_t>(number)], values_of(0, number, 5));
    }
  });
}

TEST(PointToPointTest, a_receive_from_anybody_says_who_it_was) {
  run_ranks(3, [](Runtime& runtime) {
    PointToPoint messages(runtime.group());
    std::vector<std::int32_t> value{runtime.rank()};
    if (runtime.rank() != 0) {
      messages.send(0, 1, DataType::kInt32, bytes_of(value)).wait();
      return;
    }
    std::vector<int> seen;
    for (int count = 0; count < 2; ++count) {
      const Handle handle = messages.receive(std::nullopt, 1, DataType::kInt32, bytes_of(value));
      handle.wait();
      EXPECT_EQ(handle.take_result().source, value[0]);
      seen.push_back(value[0]);
    }
    EXPECT_THAT(seen, testing::UnorderedElementsAre(1, 2));
  });
}

TEST(PointToPointTest, a_wrong_length_fails_both_sides_and_the_next_message_arrives) {
  run_ranks(2, [](Runtime& runtime) {
    PointToPoint messages(runtime.group());
    const bool sends = runtime.rank() == 0;
    std::vector<std::int32_t> values(sends ? 4 : 3);
    const auto exchange = [&](DataType type) {
      return sends ? messages.send(1, 0, type, bytes_of(values)) : messages.receive(0, 0, type, bytes_of(values));
    };
    const std::string failure = failure_of(exchange(DataType::kInt32));
    EXPECT_THAT(failure, HasSubstr("MISMATCH"));
    EXPECT_THAT(failure, HasSubstr("rank 0 sends 4 int32 elements with tag 0, which rank 1 receives as 3"));
    values = sends ? std::vector<std::int32_t>{1, 2} : std::vector<std::int32_t>{0, 0};
    exchange(DataType::kInt32).wait();
    EXPECT_EQ(values, (std::vector<std::int32_t>{1, 2}));
    const DataType own_type = sends ? DataType::kFloat32 : DataType::kInt32;
    EXPECT_THAT(failure_of(exchange(own_type)), HasSubstr("float32"));
  });
}

TEST(PointToPointTest, empty_messages_arrive) {
  run_ranks(2, [](Runtime& runtime) {
    PointToPoint messages(runtime.group());
    const Handle handle = runtime.rank() == 0 ? messages.send(1, 3, DataType::kFloat32, {})
                                              : messages.receive(0, 3, DataType::kFloat32, {});
    handle.wait();
  });
}

TEST(PointToPointTest, a_peer_that_does_not_exist_is_an_error_at_once) {
  run_ranks(2, [](Runtime& runtime) {
    PointToPoint messages(runtime.group());
    EXPECT_THROW(messages.send(2, 0, DataType::kInt32, {}), Error);
    EXPECT_THROW(messages.send(runtime.rank(), 0, DataType::kInt32, {}), Error);
    EXPECT_THROW(messages.receive(-1, 0, DataType::kInt32, {}), Error);
  });
}

TEST(PointToPointTest, what_waits_for_a_rank_that_leaves_fails_and_others_go_on) {
  run_ranks(3, [](Runtime& runtime) {
    PointToPoint messages(runtime.group());
    std::vector<std::int32_t> values{runtime.rank()};
    if (runtime.rank() == 2) {
      messages.shutdown();
      runtime.shutdown();
      return;
    }
    EXPECT_THAT(failure_of(messages.receive(2, 0, DataType::kInt32, bytes_of(values))), HasSubstr("PEER_LEFT"));
    const Handle handle = runtime.rank() == 0 ? messages.send(1, 0, DataType::kInt32, bytes_of(values))
                                              : messages.receive(0, 0, DataType::kInt32, bytes_of(values));
    handle.wait();
    EXPECT_EQ(values[0], 0);
  });
}

TEST(PointToPointTest, an_abort_fails_what_waits) {
  run_ranks(2, [](Runtime& runtime) {
    PointToPoint messages(runtime.group());
    std::vector<std::int32_t> values(1);
    std::vector<std::int32_t> word(1);
    const Handle handle = messages.receive(1 - runtime.rank(), 0, DataType::kInt32, bytes_of(values));
    if (runtime.rank() == 0) {
      messages.send(1, 1, DataType::kInt32, bytes_of(word));  // Rank 0 waits already: let there be an abort.
    } else {
      messages.receive(0, 1, DataType::kInt32, bytes_of(word)).wait();
      runtime.group().abort(Error(ErrorCode::kAborted, "enough"));
    }
    EXPECT_THAT(failure_of(handle), HasSubstr("enough"));
  });
}

}  // namespace
}  // namespace gyre::engine
