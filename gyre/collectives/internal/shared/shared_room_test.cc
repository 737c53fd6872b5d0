// Why: everything on one host stands on the segment's layout, which nobody initialises, and on a barrier that must
// lose no wake-up.
#include "gyre/collectives/internal/shared/shared_room.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "gyre/collectives/internal/test_support.h"
#include "gyre/collectives/schedule/chunks.h"

namespace gyre::collectives::internal {
namespace {

/// Zero-filled memory on a page border.
struct Memory {
  explicit Memory(std::size_t size_bytes) : storage(size_bytes + kPageBytes) {
    const auto address = reinterpret_cast<std::uintptr_t>(storage.data());
    bytes = std::span(storage).subspan((kPageBytes - address % kPageBytes) % kPageBytes, size_bytes);
  }
  Bytes storage;
  std::span<std::byte> bytes;
};

TEST(SharedLayout, gives_every_rank_places_of_its_own_that_do_not_alias) {
  for (int size = 1; size <= 8; ++size) {
    const std::size_t arena_bytes = 100'000;
    Memory memory(SharedLayout::segment_bytes_for(size, arena_bytes));
    const SharedLayout layout(memory.bytes, size);
    std::vector<std::pair<std::byte*, std::size_t>> places;
    for (int r = 0; r < size; ++r) {
      places.emplace_back(reinterpret_cast<std::byte*>(&layout.line(r)), sizeof(RankLine));
    }
    for (int r = 0; r < size; ++r) {
      for (std::size_t i = 0; i < kSlots; ++i) places.emplace_back(layout.slot(r, i), kSlotBytes);
    }
    for (int r = 0; r < size; ++r) {
      EXPECT_GE(layout.arena(r).size(), arena_bytes);
      places.emplace_back(layout.arena(r).data(), layout.arena(r).size());
    }
    const std::byte* end = memory.bytes.data() + sizeof(ControlWords);
    for (const auto& [begin, bytes] : places) {
      EXPECT_GE(begin, end);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(begin) % kCacheLineBytes, 0U);
      end = begin + bytes;
    }
    EXPECT_LE(end, memory.bytes.data() + memory.bytes.size());
    for (int r = 1; r < size; ++r) {
      const auto apart = static_cast<std::size_t>(layout.arena(r).data() - layout.arena(r - 1).data());
      EXPECT_EQ(apart % kPageBytes, kStaggerBytes);
      EXPECT_EQ(apart / kPageBytes % 2, 1U);
    }
  }
}

TEST(SharedLayout, has_no_arena_when_none_was_asked_for) {
  Memory memory(SharedLayout::segment_bytes_for(3, 0));
  EXPECT_TRUE(SharedLayout(memory.bytes, 3).arena(0).empty());
  Memory rounded(SharedLayout::segment_bytes_for(3, 0) + 100);
  EXPECT_TRUE(SharedLayout(rounded.bytes, 3).arena(0).empty());
}

TEST(SharedLayout, is_prepared_by_whoever_comes_first) {
  Memory memory(SharedLayout::segment_bytes_for(8, 0));
  std::vector<std::thread> threads;
  for (int r = 0; r < 8; ++r) threads.emplace_back([&] { SharedLayout(memory.bytes, 8); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_THROW(SharedLayout(memory.bytes, 7), Error);
}

TEST(SharedLayout, refuses_a_segment_that_is_too_small) {
  Memory memory(4096);
  EXPECT_THROW(SharedLayout(memory.bytes, 2), Error);
}

TEST(SharedRoom, loses_no_wake_up_when_ranks_come_at_different_times) {
  // Delays chosen to meet waiters spinning, yielding, falling asleep and asleep.
  testing::run_ranks(4, testing::one_host(4), [](group::Lane& lane) {
    for (int round = 0; round < 120; ++round) {
      SharedRoom room(lane, lane.begin_collective());
      if (round % 4 == lane.rank()) std::this_thread::sleep_for(std::chrono::microseconds((round * 37) % 700));
      room.arrive_and_wait();
    }
    EXPECT_GT(lane.counters().yields, 0U);
  });
}

TEST(SharedRoom, sleeps_while_it_waits_long) {
  std::atomic<const group::LaneCounters*> sleeper = nullptr;
  testing::run_ranks(2, testing::one_host(2), [&](group::Lane& lane) {
    SharedRoom room(lane, lane.begin_collective());
    const std::uint64_t before = lane.counters().futex_sleeps;
    const auto start = SteadyClock::now();
    if (lane.rank() == 1) {
      sleeper = &lane.counters();
    } else {
      const Deadline deadline = Deadline::after(std::chrono::seconds(30));
      while ((sleeper == nullptr || sleeper.load()->futex_sleeps == 0) && !deadline.passed()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    room.arrive_and_wait();
    // Once per slice of 40 ms, or a little more often.
    if (lane.rank() == 1) {
      const auto waited_ms = std::chrono::duration_cast<std::chrono::milliseconds>(SteadyClock::now() - start).count();
      EXPECT_GE(lane.counters().futex_sleeps - before, 1U);
      EXPECT_LE(lane.counters().futex_sleeps - before, static_cast<std::uint64_t>(waited_ms) / 10);
    }
  });
}

TEST(SharedRoom, a_rank_is_not_given_up_while_it_says_that_it_gets_on) {
  // As the one does who moves a slice between hosts for all others.
  constexpr std::chrono::milliseconds kTimeout{1000};
  const auto body = [&](group::Lane& lane) {
    SharedRoom room(lane, lane.begin_collective());
    if (lane.rank() == 0) {
      const auto until = SteadyClock::now() + 3 * kTimeout / 2;
      while (SteadyClock::now() < until) {
        room.note_progress();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
    room.arrive_and_wait();
  };
  EXPECT_NO_THROW(testing::run_ranks(2, testing::one_host(2), body, 0, kTimeout));
}

}  // namespace
}  // namespace gyre::collectives::internal
