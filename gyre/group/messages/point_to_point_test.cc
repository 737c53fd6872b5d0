// Messages between two ranks: whatever the order of sends and receives, bytes must arrive where the tags say, and what
// can never arrive must fail on both sides with a reason.
#include "gyre/group/messages/point_to_point.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <iterator>
#include <numeric>
#include <thread>

#include "gyre/base/checksum.h"
#include "gyre/base/random.h"
#include "gyre/group/in_process.h"
#include "gyre/group/messages/internal/mail_segment.h"
#include "gyre/net/frame.h"

namespace gyre::group {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t kChannel = 8;
constexpr std::uint8_t kInt32 = 3;
constexpr std::uint8_t kFloat32 = 5;

std::string describe(std::uint8_t type, std::size_t size_bytes) {
  return fmt::format("{} {} elements", size_bytes / 4, type == kInt32 ? "int32" : "float32");
}

std::span<std::byte> bytes_of(std::vector<std::int32_t>& values) { return std::as_writable_bytes(std::span(values)); }

std::vector<std::int32_t> values_of(int sender, int number, std::size_t count) {
  std::vector<std::int32_t> values(count);
  std::iota(values.begin(), values.end(), sender * 1'000'000 + number * 1000);
  return values;
}

std::string failure_of(const MessageHandle& handle) {
  try {
    handle.wait();
  } catch (const Error& error) {
    return std::string(error_code_name(error.code())) + ": " + error.what();
  }
  return "no error";
}

class PointToPointTest : public testing::TestWithParam<LocalPath> {};

std::string name_of(const testing::TestParamInfo<LocalPath>& path) {
  switch (path.param) {
    case LocalPath::kSharedMemory: return "shared_memory";
    case LocalPath::kPieces: return "pieces";
    case LocalPath::kLinks: return "links";
  }
  return "";
}

INSTANTIATE_TEST_SUITE_P(EveryPath, PointToPointTest,
                         testing::Values(LocalPath::kSharedMemory, LocalPath::kPieces, LocalPath::kLinks), name_of);

TEST_P(PointToPointTest, every_rank_sends_to_every_other_in_any_order) {
  constexpr std::uint64_t kSeed = 11;
  constexpr int kMessages = 30;
  SCOPED_TRACE(kSeed);
  const auto length = [](int number) { return Random(kSeed, static_cast<std::uint64_t>(number)).below(400'000); };
  run_in_process(3, [&](Group& group) {
    PointToPoint messages(group, kChannel, describe, GetParam());
    std::vector<std::vector<std::int32_t>> memory;
    std::vector<std::vector<std::int32_t>> expected;
    std::vector<MessageHandle> handles;
    memory.reserve(6 * static_cast<std::size_t>(kMessages));
    const auto send = [&](int peer, int number) {
      memory.push_back(values_of(group.rank(), number, length(number)));
      expected.push_back(memory.back());
      handles.push_back(messages.send(peer, number, kInt32, bytes_of(memory.back())));
    };
    const auto receive = [&](int peer, int number) {
      memory.emplace_back(length(number));
      expected.push_back(values_of(peer, number, length(number)));
      handles.push_back(messages.receive(peer, number, kInt32, bytes_of(memory.back())));
    };
    for (int number = 0; number < kMessages; ++number) {
      for (int peer = 0; peer < group.size(); ++peer) {
        if (peer == group.rank()) continue;
        // Receives are posted backwards, so that nearly every message waits for a while on one of the two sides.
        send(peer, number);
        receive(peer, kMessages - 1 - number);
      }
    }
    for (const MessageHandle& handle : handles) handle.wait();
    for (std::size_t i = 0; i < memory.size(); ++i) ASSERT_EQ(memory[i], expected[i]) << i;
  });
}

TEST_P(PointToPointTest, equal_tags_meet_in_the_order_of_sending) {
  run_in_process(2, [&](Group& group) {
    PointToPoint messages(group, kChannel, describe, GetParam());
    std::vector<std::vector<std::int32_t>> memory;
    std::vector<MessageHandle> handles;
    for (int number = 0; number < 20; ++number) {
      memory.push_back(group.rank() == 0 ? values_of(0, number, 5) : std::vector<std::int32_t>(5));
    }
    for (auto& values : memory) {
      handles.push_back(group.rank() == 0 ? messages.send(1, 7, kInt32, bytes_of(values))
                                          : messages.receive(0, 7, kInt32, bytes_of(values)));
    }
    for (const MessageHandle& handle : handles) handle.wait();
    for (int number = 0; number < 20; ++number) {
      EXPECT_EQ(memory[static_cast<std::size_t>(number)], values_of(0, number, 5));
    }
  });
}

TEST_P(PointToPointTest, a_receive_from_anybody_says_who_it_was) {
  run_in_process(3, [&](Group& group) {
    PointToPoint messages(group, kChannel, describe, GetParam());
    std::vector<std::int32_t> value{group.rank()};
    if (group.rank() != 0) {
      messages.send(0, 1, kInt32, bytes_of(value)).wait();
      return;
    }
    std::vector<int> seen;
    for (int count = 0; count < 2; ++count) {
      const MessageHandle handle = messages.receive(std::nullopt, 1, kInt32, bytes_of(value));
      handle.wait();
      EXPECT_EQ(handle.take_result().source, value[0]);
      seen.push_back(value[0]);
    }
    EXPECT_THAT(seen, testing::UnorderedElementsAre(1, 2));
  });
}

TEST_P(PointToPointTest, a_wrong_length_fails_both_sides_and_the_next_message_arrives) {
  run_in_process(2, [&](Group& group) {
    PointToPoint messages(group, kChannel, describe, GetParam());
    const bool sends = group.rank() == 0;
    std::vector<std::int32_t> values(sends ? 4 : 3);
    const auto exchange = [&](std::uint8_t type) {
      return sends ? messages.send(1, 0, type, bytes_of(values)) : messages.receive(0, 0, type, bytes_of(values));
    };
    const std::string failure = failure_of(exchange(kInt32));
    EXPECT_THAT(failure, HasSubstr("MISMATCH"));
    EXPECT_THAT(failure, HasSubstr("rank 0 sends 4 int32 elements with tag 0, which rank 1 receives as 3"));
    values = sends ? std::vector<std::int32_t>{1, 2} : std::vector<std::int32_t>{0, 0};
    exchange(kInt32).wait();
    EXPECT_EQ(values, (std::vector<std::int32_t>{1, 2}));
    const std::uint8_t own_type = sends ? kFloat32 : kInt32;
    EXPECT_THAT(failure_of(exchange(own_type)), HasSubstr("float32"));
  });
}

TEST_P(PointToPointTest, empty_messages_arrive) {
  run_in_process(2, [&](Group& group) {
    PointToPoint messages(group, kChannel, describe, GetParam());
    const MessageHandle handle =
        group.rank() == 0 ? messages.send(1, 3, kFloat32, {}) : messages.receive(0, 3, kFloat32, {});
    handle.wait();
  });
}

// Each length has its own way: beside the offer, copied at once, copied in parts.
TEST_P(PointToPointTest, messages_of_every_length_arrive) {
  constexpr std::array<std::size_t, 9> kCounts{1, 4, 5, 1024, 1025, 16'384, 16'385, 300'000, 800'001};
  run_in_process(2, [&](Group& group) {
    PointToPoint messages(group, kChannel, describe, GetParam());
    for (const std::size_t count : kCounts) {
      for (int number = 0; number < 3; ++number) {
        std::vector<std::int32_t> values = group.rank() == 0 ? values_of(0, number, count) : std::vector<int>(count);
        if (group.rank() == 0) {
          messages.send(1, 0, kInt32, bytes_of(values)).wait();
          std::ranges::fill(values, 0);
          messages.receive(1, 0, kInt32, bytes_of(values)).wait();
        } else {
          messages.receive(0, 0, kInt32, bytes_of(values)).wait();
          messages.send(0, 0, kInt32, bytes_of(values)).wait();
        }
        ASSERT_EQ(values, values_of(0, number, count));
      }
    }
  });
}

// More than rings hold and more than is kept of messages without a receive.
TEST_P(PointToPointTest, a_great_many_sends_wait_for_their_receives) {
  constexpr int kMessages = 3000;
  constexpr std::size_t kCount = 1000;
  run_in_process(2, [&](Group& group) {
    PointToPoint messages(group, kChannel, describe, GetParam());
    std::vector<std::vector<std::int32_t>> memory;
    std::vector<MessageHandle> handles;
    std::vector<std::int32_t> all_offered(1);
    for (int number = 0; number < kMessages; ++number) {
      memory.push_back(group.rank() == 0 ? values_of(0, number, kCount) : std::vector<std::int32_t>(kCount));
    }
    if (group.rank() == 0) {
      for (int number = 0; number < kMessages; ++number) {
        handles.push_back(messages.send(1, number, kInt32, bytes_of(memory[static_cast<std::size_t>(number)])));
      }
      EXPECT_FALSE(handles.back().done()) << "a send is done when a receive has taken it";
      messages.send(1, -1, kInt32, bytes_of(all_offered)).wait();
    } else {
      messages.receive(0, -1, kInt32, bytes_of(all_offered)).wait();
      for (int number = kMessages - 1; number >= 0; --number) {
        handles.push_back(messages.receive(0, number, kInt32, bytes_of(memory[static_cast<std::size_t>(number)])));
      }
    }
    for (const MessageHandle& handle : handles) handle.wait();
    for (int number = 0; number < kMessages; ++number) {
      ASSERT_EQ(memory[static_cast<std::size_t>(number)], values_of(0, number, kCount));
    }
  });
}

// One of them moves the messages of all.
TEST_P(PointToPointTest, threads_of_a_rank_wait_at_the_same_time) {
  run_in_process(2, [&](Group& group) {
    PointToPoint messages(group, kChannel, describe, GetParam());
    const auto exchange = [&](int thread) {
      for (int number = 0; number < 100; ++number) {
        const std::size_t count = number % 10 == 0 ? 50'000 : 10;
        std::vector<std::int32_t> ours = values_of(group.rank(), number, count);
        std::vector<std::int32_t> theirs(count);
        const MessageHandle send = messages.send(1 - group.rank(), thread, kInt32, bytes_of(ours));
        messages.receive(1 - group.rank(), thread, kInt32, bytes_of(theirs)).wait();
        send.wait();
        EXPECT_EQ(theirs, values_of(1 - group.rank(), number, count));
      }
    };
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 4; ++thread) threads.emplace_back(exchange, thread);
    for (std::thread& thread : threads) thread.join();
  });
}

TEST_P(PointToPointTest, messages_arrive_while_nobody_waits_for_them) {
  run_in_process(2, [&](Group& group) {
    PointToPoint messages(group, kChannel, describe, GetParam());
    for (const std::size_t count : {10U, 20'000U, 600'000U}) {
      std::vector<std::int32_t> values = group.rank() == 0 ? values_of(0, 1, count) : std::vector<int>(count);
      const MessageHandle handle = group.rank() == 0 ? messages.send(1, 0, kInt32, bytes_of(values))
                                                     : messages.receive(0, 0, kInt32, bytes_of(values));
      while (!handle.done()) std::this_thread::yield();
      EXPECT_EQ(values, values_of(0, 1, count));
    }
  });
}

TEST_P(PointToPointTest, a_wait_with_a_limit_ends_without_the_message_which_arrives_later) {
  run_in_process(2, [&](Group& group) {
    PointToPoint messages(group, kChannel, describe, GetParam());
    std::vector<std::int32_t> values(3, group.rank() + 1);
    std::vector<std::int32_t> word(1);
    if (group.rank() == 0) {
      const MessageHandle handle = messages.receive(1, 0, kInt32, bytes_of(values));
      EXPECT_FALSE(handle.wait_for(std::chrono::milliseconds(2)));
      messages.send(1, 1, kInt32, bytes_of(word)).wait();
      EXPECT_TRUE(handle.wait_for(std::chrono::seconds(30)));
      EXPECT_EQ(values[0], 2);
    } else {
      messages.receive(0, 1, kInt32, bytes_of(word)).wait();
      messages.send(0, 0, kInt32, bytes_of(values)).wait();
    }
  });
}

// Its memory may be anything by then.
TEST_P(PointToPointTest, a_message_of_a_rank_that_has_shut_down_fails) {
  run_in_process(2, [&](Group& group) {
    PointToPoint messages(group, kChannel, describe, GetParam());
    std::vector<std::int32_t> values(100'000);
    std::vector<std::int32_t> word(1);
    if (group.rank() == 0) {
      const MessageHandle handle = messages.send(1, 0, kInt32, bytes_of(values));
      messages.send(1, 1, kInt32, bytes_of(word)).wait();
      messages.shutdown();
      EXPECT_THAT(failure_of(handle), HasSubstr("SHUT_DOWN"));
      group.leave();
    } else {
      messages.receive(0, 1, kInt32, bytes_of(word)).wait();
      while (!group.has_left(0)) std::this_thread::yield();
      EXPECT_THAT(failure_of(messages.receive(0, 0, kInt32, bytes_of(values))), HasSubstr("PEER_LEFT"));
    }
  });
}

TEST_P(PointToPointTest, a_peer_that_does_not_exist_is_an_error_at_once) {
  run_in_process(2, [&](Group& group) {
    PointToPoint messages(group, kChannel, describe, GetParam());
    EXPECT_THROW(messages.send(2, 0, kInt32, {}), Error);
    EXPECT_THROW(messages.send(group.rank(), 0, kInt32, {}), Error);
    EXPECT_THROW(messages.receive(-1, 0, kInt32, {}), Error);
  });
}

TEST_P(PointToPointTest, what_waits_for_a_rank_that_leaves_fails_and_others_go_on) {
  run_in_process(3, [&](Group& group) {
    PointToPoint messages(group, kChannel, describe, GetParam());
    std::vector<std::int32_t> values{group.rank()};
    if (group.rank() == 2) {
      messages.shutdown();
      group.leave();
      return;
    }
    EXPECT_THAT(failure_of(messages.receive(2, 0, kInt32, bytes_of(values))), HasSubstr("PEER_LEFT"));
    const MessageHandle handle = group.rank() == 0 ? messages.send(1, 0, kInt32, bytes_of(values))
                                                   : messages.receive(0, 0, kInt32, bytes_of(values));
    handle.wait();
    EXPECT_EQ(values[0], 0);
  });
}

TEST_P(PointToPointTest, an_abort_fails_what_waits) {
  run_in_process(2, [&](Group& group) {
    PointToPoint messages(group, kChannel, describe, GetParam());
    std::vector<std::int32_t> values(1);
    std::vector<std::int32_t> word(1);
    const MessageHandle handle = messages.receive(1 - group.rank(), 0, kInt32, bytes_of(values));
    if (group.rank() == 0) {
      messages.send(1, 1, kInt32, bytes_of(word));  // Rank 0 waits already: let there be an abort.
    } else {
      messages.receive(0, 1, kInt32, bytes_of(word)).wait();
      group.abort(Error(ErrorCode::kAborted, "enough"));
    }
    EXPECT_THAT(failure_of(handle), HasSubstr("enough"));
  });
}

std::size_t open_descriptors() {
  const auto entries = std::filesystem::directory_iterator("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(entries), end(entries)));
}

// A process group opened a link to every rank and started a thread: hundreds of megabytes with a thousand ranks.
TEST(PointToPointOnDemandTest, only_ranks_that_exchange_messages_are_linked) {
  constexpr int kSize = 24;
  const auto groups = make_in_process_groups(kSize, std::vector<std::string>(kSize, "host"));
  const std::size_t without = open_descriptors();
  std::vector<std::unique_ptr<PointToPoint>> messages;
  for (const auto& group : groups) {
    messages.push_back(std::make_unique<PointToPoint>(*group, kChannel, describe, LocalPath::kLinks));
  }
  // Each has an eventfd, and nothing else.
  EXPECT_LE(open_descriptors(), without + kSize);
  std::vector<std::int32_t> sent{5};
  std::vector<std::int32_t> received(1);
  const MessageHandle receive = messages[2]->receive(20, 0, kInt32, bytes_of(received));
  messages[20]->send(2, 0, kInt32, bytes_of(sent)).wait();
  receive.wait();
  EXPECT_EQ(received, sent);
  EXPECT_LE(open_descriptors(), without + kSize + 2);  // Both ends of the link.
  messages[2]->send(20, 0, kInt32, bytes_of(sent));    // It goes over the same one.
  messages[20]->receive(2, 0, kInt32, bytes_of(received)).wait();
  EXPECT_LE(open_descriptors(), without + kSize + 2);
}

// No link ends with them.
TEST_P(PointToPointTest, a_receive_from_anybody_fails_when_all_others_have_left) {
  run_in_process(3, [&](Group& group) {
    PointToPoint messages(group, kChannel, describe, GetParam());
    std::vector<std::int32_t> value(1);
    if (group.rank() != 0) {
      messages.shutdown();
      return;
    }
    EXPECT_THAT(failure_of(messages.receive(std::nullopt, 0, kInt32, bytes_of(value))), HasSubstr("PEER_LEFT"));
    EXPECT_THAT(failure_of(messages.send(1, 0, kInt32, bytes_of(value))), HasSubstr("PEER_LEFT"));
    EXPECT_THAT(failure_of(messages.receive(2, 0, kInt32, bytes_of(value))), HasSubstr("PEER_LEFT"));
  });
}

TEST_P(PointToPointTest, messages_before_and_after_a_shutdown_without_use_fail) {
  run_in_process(2, [&](Group& group) {
    PointToPoint messages(group, kChannel, describe, GetParam());
    messages.shutdown();
    std::vector<std::int32_t> value(1);
    EXPECT_THAT(failure_of(messages.receive(1 - group.rank(), 0, kInt32, bytes_of(value))), HasSubstr("SHUT_DOWN"));
    EXPECT_THAT(failure_of(messages.send(1 - group.rank(), 0, kInt32, bytes_of(value))), HasSubstr("SHUT_DOWN"));
  });
}

// A sender that uses a number again would have two messages written into one receive.
TEST(PointToPointOverLinksTest, what_makes_no_sense_fails_the_group) {
  const auto header_of = [](std::uint64_t message, std::uint32_t kind, std::span<const std::byte> payload) {
    net::FrameHeader header;
    header.payload_bytes = static_cast<std::uint32_t>(payload.size());
    header.channel = kChannel;
    header.collective = message;
    header.step = kind;
    header.checksum = xxh3_64(payload);
    return net::encode_frame_header(header);
  };
  ByteWriter offer;
  offer.u64(0);  // The tag.
  offer.u8(kInt32);
  offer.u64(4);
  const Bytes offered = offer.take();
  const std::vector<std::pair<std::string, std::vector<std::pair<std::uint64_t, std::uint32_t>>>> cases = {
      {"offered message 1 after message 1", {{1, 1}, {1, 1}}},
      {"accepted message 9, which it was not offered", {{9, 2}}},
      {"which rank 0 does not expect", {{7, 4}}},
      {"kind 5 about message 1", {{1, 5}}},
  };
  for (const auto& [words, frames] : cases) {
    run_in_process(2, [&](Group& group) {
      if (group.rank() == 1) {
        Bytes all;  // In one piece: rank 0 may close the link in the middle of a frame.
        for (const auto& [message, kind] : frames) {
          const net::EncodedFrameHeader header = header_of(message, kind, offered);
          all.insert(all.end(), header.begin(), header.end());
          all.insert(all.end(), offered.begin(), offered.end());
        }
        const Deadline deadline = Deadline::after(std::chrono::seconds(30));
        const auto link = group.connect(0, kChannel, deadline);
        net::write_exactly(*link, all, deadline);
        while (!group.abort_signal().triggered()) std::this_thread::yield();
        EXPECT_THAT(group.abort_signal().reason()->what(), HasSubstr(words));
        return;
      }
      PointToPoint messages(group, kChannel, describe, LocalPath::kLinks);
      std::vector<std::int32_t> value(1);
      EXPECT_THAT(failure_of(messages.receive(1, 99, kInt32, bytes_of(value))), HasSubstr(words));
    });
  }
}

// A rank of this host writes into memory that this one reads.
TEST(PointToPointInSharedMemoryTest, records_that_make_no_sense_fail_the_group) {
  using internal::MailHead;
  using internal::MailKind;
  const std::vector<std::pair<std::string, std::vector<MailHead>>> cases = {
      {"offered message 1 after message 1",
       {{.number = 1, .kind = MailKind::kOffer}, {.number = 1, .kind = MailKind::kOffer}}},
      {"took message 9, which it was not offered", {{.number = 9, .kind = MailKind::kTaken}}},
      {"accepted message 9, which it was not offered", {{.number = 9, .kind = MailKind::kAccept}}},
      {"which rank 0 does not expect", {{.number = 7, .kind = MailKind::kPiece}}},
      {"of kind 77 about message 7", {{.number = 7, .kind = static_cast<MailKind>(77)}}},
      {"of 9 bytes with 3 of them", {{.number = 1, .size_bytes = 9, .kind = MailKind::kOffer}}},
  };
  for (const auto& [words, heads] : cases) {
    run_in_process(2, [&](Group& group) {
      if (group.rank() == 1) {
        const Deadline deadline = Deadline::after(std::chrono::seconds(30));
        const internal::MailSegment segment(
            group.share_segment(kChannel, internal::MailSegment::bytes_for(2), deadline), 2);
        const auto link = group.connect(0, kChannel, deadline);
        internal::MailWriter writer(segment.control(1, 0), segment.ring(1, 0), "rank 0");
        for (const MailHead& head : heads) writer.write(head, Bytes(head.size_bytes == 9 ? 3 : 0));
        while (!group.abort_signal().triggered()) std::this_thread::yield();
        EXPECT_THAT(group.abort_signal().reason()->what(), HasSubstr(words));
        return;
      }
      PointToPoint messages(group, kChannel, describe);
      std::vector<std::int32_t> value(1);
      EXPECT_THAT(failure_of(messages.receive(1, 99, kInt32, bytes_of(value))), HasSubstr(words));
    });
  }
}

}  // namespace
}  // namespace gyre::group
