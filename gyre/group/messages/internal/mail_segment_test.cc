// The rings through which ranks of one host send messages: records must arrive whole and in order however the ring
// turns over, and nothing that another rank writes there may make this one read beyond it.
#include "gyre/group/messages/internal/mail_segment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/base/random.h"

namespace gyre::group::internal {
namespace {

using testing::HasSubstr;

/// A ring with both of its ends.
struct Ring {
  explicit Ring(int local_size = 2)
      : segment(net::Segment::create(MailSegment::bytes_for(local_size)), local_size),
        writer(segment.control(0, 1), segment.ring(0, 1), "rank 1"),
        reader(segment.control(0, 1), segment.ring(0, 1), "rank 0") {}

  MailSegment segment;
  MailWriter writer;
  MailReader reader;
};

Bytes content_of(std::uint64_t number, std::size_t size_bytes) {
  return Bytes(size_bytes, static_cast<std::byte>(number % 251 + 1));
}

TEST(MailSegmentTest, records_of_all_lengths_arrive_in_order_while_the_ring_turns_over) {
  constexpr std::uint64_t kSeed = 5;
  constexpr std::uint64_t kRecords = 20'000;
  SCOPED_TRACE(kSeed);
  Ring ring(16);  // Short rings.
  const auto length = [&](std::uint64_t number) {
    Random random(kSeed, number);
    return random.below(4) == 0 ? random.below(ring.writer.longest_payload() + 1) : random.below(100);
  };
  std::thread writer([&] {
    for (std::uint64_t number = 0; number < kRecords; ++number) {
      const Bytes content = content_of(number, length(number));
      while (!ring.writer.write({.number = number, .kind = MailKind::kPiece}, content)) std::this_thread::yield();
    }
  });
  std::uint64_t wrong = 0;
  std::uint64_t next = 0;
  const auto take = [&](const MailHead& head, std::span<const std::byte> payload) {
    const Bytes expected = content_of(next, length(next));
    wrong += head.number != next || !std::ranges::equal(payload, expected) ? 1 : 0;
    ++next;
  };
  while (next < kRecords) {
    if (!ring.reader.read(take)) std::this_thread::yield();
  }
  writer.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_FALSE(ring.reader.pending());
}

TEST(MailSegmentTest, a_full_ring_takes_nothing_until_its_reader_has_made_room_and_said_so) {
  Ring ring;
  const Bytes content(1000);
  while (ring.writer.write({.kind = MailKind::kPiece}, content)) {
  }
  ring.writer.ask_for_room();
  EXPECT_FALSE(ring.writer.room_was_made());
  const auto drop = [](const MailHead&, std::span<const std::byte>) {};
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(ring.reader.read(drop));
  EXPECT_TRUE(ring.reader.writer_is_starved());
  EXPECT_FALSE(ring.reader.writer_is_starved()) << "told once";
  EXPECT_TRUE(ring.writer.room_was_made());
  EXPECT_TRUE(ring.writer.write({.kind = MailKind::kPiece}, content));
}

TEST(MailSegmentTest, a_stopped_reader_sees_nothing_more) {
  Ring ring;
  ASSERT_TRUE(ring.writer.write({.kind = MailKind::kTaken}, {}));
  EXPECT_TRUE(ring.reader.pending());
  ring.reader.stop();
  EXPECT_FALSE(ring.reader.pending());
}

TEST(MailSegmentTest, places_do_not_overlap) {
  constexpr int kRanks = 5;
  const MailSegment segment(net::Segment::create(MailSegment::bytes_for(kRanks)), kRanks);
  std::vector<std::pair<const std::byte*, const std::byte*>> places;
  for (int from = 0; from < kRanks; ++from) {
    const auto* desk = reinterpret_cast<const std::byte*>(&segment.desk(from));
    places.emplace_back(desk, desk + sizeof(Desk));
    for (int to = 0; to < kRanks; ++to) {
      if (from == to) continue;
      const auto ring = segment.ring(from, to);
      places.emplace_back(reinterpret_cast<const std::byte*>(&segment.control(from, to)), ring.data() + ring.size());
    }
  }
  std::ranges::sort(places);
  for (std::size_t i = 1; i < places.size(); ++i) EXPECT_LE(places[i - 1].second, places[i].first);
}

std::string failure_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return std::string(error_code_name(error.code())) + ": " + error.what();
  }
  return "no error";
}

// What a broken or hostile rank can write.
TEST(MailSegmentTest, a_length_beyond_the_ring_is_an_error_and_is_not_read) {
  Ring ring;
  ASSERT_TRUE(ring.writer.write({.kind = MailKind::kPiece}, Bytes(10)));
  constexpr std::size_t kLengthOffset = 8 + 4 * 8;  // In a record: after the marker and four words.
  const std::uint32_t length = 1U << 31;
  std::memcpy(ring.segment.ring(0, 1).data() + kLengthOffset, &length, sizeof(length));
  bool taken = false;
  const auto take = [&](const MailHead&, std::span<const std::byte>) { taken = true; };
  EXPECT_THAT(failure_of([&] { ring.reader.read(take); }), HasSubstr("PROTOCOL: rank 0 announces 2147483648 bytes"));
  EXPECT_FALSE(taken);
}

// It would be read for ever.
TEST(MailSegmentTest, a_ring_that_is_skipped_as_a_whole_is_an_error) {
  Ring ring;
  ASSERT_TRUE(ring.writer.write({.kind = MailKind::kSkip}, {}));
  const auto drop = [](const MailHead&, std::span<const std::byte>) {};
  EXPECT_THAT(failure_of([&] { ring.reader.read(drop); }), HasSubstr("PROTOCOL: rank 0 skips its whole ring"));
}

TEST(MailSegmentTest, a_reader_that_claims_more_than_was_written_is_an_error) {
  Ring ring;
  ring.segment.control(0, 1).consumed.store(1 << 20);
  const Bytes content(ring.writer.longest_payload());
  const auto fill = [&] {
    while (ring.writer.write({.kind = MailKind::kPiece}, content)) {
    }
  };
  EXPECT_THAT(failure_of(fill), HasSubstr("PROTOCOL: rank 1 claims to have read 1048576 bytes"));
}

}  // namespace
}  // namespace gyre::group::internal
