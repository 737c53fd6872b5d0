// Steps in memory that a worker shares with the servers of its host: the same as others, without messages of values.
#include "gyre/params/internal/shared_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "gyre/group/messages/point_to_point.h"
#include "gyre/params/internal/channel.h"
#include "gyre/params/internal/requests.h"
#include "gyre/params/servers_test_support.h"

namespace gyre::params {
namespace {

using testing::HasSubstr;

TEST(SharedValues, steps_in_the_memory_of_servers_are_the_same_steps) {
  const UpdateOptions adam{.rule = Rule::kAdam, .rate = 0.1};
  const Tensors alone = train_alone(3, adam, 5);
  for (const InMemory& in_memory : {InMemory(always), InMemory(in_turns)}) {
    for (const int servers : {1, 3}) {
      EXPECT_EQ(train_with_servers({.workers = 3, .servers = servers}, adam, 5, in_memory), alone) << servers;
    }
    // Worker 0 has a server on its host, worker 1 has one of two, and worker 2 has none.
    EXPECT_EQ(train_with_servers({.workers = 3, .servers = 2}, adam, 5, in_memory, {"a", "b", "a", "b", "c"}), alone);
    EXPECT_EQ(train_with_servers({.workers = 3, .servers = 2}, adam, 5, in_memory, {"a", "a", "a", "b", "b"}), alone);
  }
}

/// Plays a server of one worker and one block: takes a step and answers it with twice the gradients.
void double_in_place(group::Group& group, const Layout& layout) {
  using namespace internal;
  group::PointToPoint messages(group, kChannel, describe_message);
  const auto receive = [&](std::int64_t tag, std::uint8_t type, std::span<std::byte> into) {
    messages.receive(1, tag, type, into).wait();
  };
  std::array<std::byte, kRequestBytes> request{};
  receive(kRequestTag, kBytesType, request);
  Bytes setup(decode_request(request).payload_bytes);
  receive(kPayloadTag, kBytesType, setup);
  const SharedValues shared(group, layout, 0, 8);
  receive(kRequestTag, kBytesType, request);
  EXPECT_EQ(decode_request(request).kind, RequestKind::kStepInPlace);
  receive(tag_of_block(0), kInPlaceType, {});
  for (float& value : shared.values()) value *= 2;
  messages.send(1, tag_of_block(0), kInPlaceType, {}).wait();
  receive(kRequestTag, kBytesType, request);
  EXPECT_EQ(decode_request(request).kind, RequestKind::kLeave);
  group.leave();
}

TEST(SharedValues, a_step_in_memory_sends_no_values) {
  const Layout layout{.workers = 1, .servers = 1};
  const TrainingSetup setup{.tensor_values = {5, 3}, .groups = {{.rule = Rule::kAverage}}};
  group::run_in_process(2, [&](group::Group& group) {
    if (group.rank() == 0) return double_in_place(group, layout);
    Client client(group, layout, setup);
    const Client::Values memory = client.memory();
    memory[0][4] = 1.5F;
    memory[1][2] = 4;
    client.step(std::vector<std::span<const float>>(memory.begin(), memory.end()), memory);
    EXPECT_EQ(memory[0][4], 3);
    EXPECT_EQ(memory[1][2], 8);
  });
}

TEST(SharedValues, a_step_in_memory_that_is_not_shared_is_refused) {
  using namespace internal;
  const Layout layout{.workers = 1, .servers = 1};
  const auto work = [&](group::Group& group) {
    const Bytes setup = encode(setup_of(1, {.rule = Rule::kAverage}));
    const auto configure = encode(Request{.kind = RequestKind::kConfigure, .payload_bytes = setup.size()});
    const auto step = encode(Request{.kind = RequestKind::kStepInPlace, .step = 1});
    group::PointToPoint messages(group, kChannel, describe_message);
    messages.send(0, kRequestTag, kBytesType, configure).wait();
    messages.send(0, kPayloadTag, kBytesType, setup).wait();
    messages.send(0, kRequestTag, kBytesType, step).wait();
    messages.receive(0, kPayloadTag, kBytesType, {}).wait();
  };
  EXPECT_THAT(failure_of(layout, work, {"a", "b"}), HasSubstr("a worker of another host has no memory in common"));
}

TEST(SharedValues, memory_is_zero_at_first_and_of_the_tensors_sizes) {
  for (const auto& host_ids : {std::vector<std::string>{}, {"a", "b"}}) {
    run(
        {.workers = 1, .servers = 1}, setup_of(1, {}),
        [&](Client& client) {
          const Client::Values memory = client.memory();
          const Tensors expected = zeros();
          ASSERT_EQ(memory.size(), expected.size());
          for (std::size_t i = 0; i < memory.size(); ++i) EXPECT_TRUE(std::ranges::equal(memory[i], expected[i]));
          EXPECT_EQ(client.memory()[1].data(), memory[1].data());
        },
        host_ids);
  }
}

}  // namespace
}  // namespace gyre::params
