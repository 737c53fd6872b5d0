// Why: ranks write their slots in turns through the cache and around it, and then in the faster way, without a message
// about it. All of them must take their turns in the same collectives.
#include "gyre/collectives/internal/shared/slot_writing.h"

#include <gtest/gtest.h>

#include <vector>

#include "gyre/collectives/internal/test_support.h"

namespace gyre::collectives::internal {
namespace {

constexpr std::uint64_t kKind = 7;
constexpr std::uint64_t kOtherKind = 8;

/// One collective of a rank; whether it writes through the cache.
bool one_collective(group::Lane& lane, std::uint64_t kind) {
  SharedRoom room(lane, lane.begin_collective());
  SlotWriting slots(room, kind);
  room.arrive_and_wait();
  slots.begin();
  slots.end();
  // What the first rank decides is seen by all in the next collective.
  room.arrive_and_wait();
  return slots.through_cache();
}

/// Makes one way the faster one, whatever is measured.
void favour(group::Lane& lane, bool through_cache) {
  SharedRoom(lane, lane.begin_collective()).layout().line(0).trial.shortest_ns[through_cache ? 1 : 0] = 0;
}

TEST(SlotWriting, four_collectives_of_a_kind_take_turns_and_the_others_follow_the_faster_way) {
  for (const bool through_cache : {true, false}) {
    testing::run_ranks(3, testing::one_host(3), [&](group::Lane& lane) {
      std::vector<bool> ways;
      for (int turn = 0; turn < 2; ++turn) ways.push_back(one_collective(lane, kKind));
      EXPECT_FALSE(one_collective(lane, kOtherKind));
      EXPECT_FALSE(one_collective(lane, 0));
      if (lane.rank() == 0) favour(lane, through_cache);
      for (int turn = 2; turn < 4; ++turn) ways.push_back(one_collective(lane, kKind));
      EXPECT_EQ(ways, (std::vector<bool>{false, true, false, true}));
      EXPECT_EQ(one_collective(lane, kKind), through_cache);
      EXPECT_EQ(one_collective(lane, kOtherKind), through_cache);
    });
  }
}

TEST(SlotWriting, what_is_too_short_to_time_is_no_trial_and_does_not_count) {
  testing::run_ranks(2, testing::one_host(2), [](group::Lane& lane) {
    for (int call = 0; call < 100; ++call) EXPECT_FALSE(one_collective(lane, 0));
    EXPECT_FALSE(one_collective(lane, kKind));
    EXPECT_TRUE(one_collective(lane, kKind));
  });
}

TEST(SlotWriting, the_next_trial_comes_after_sixty_collectives) {
  testing::run_ranks(2, testing::one_host(2), [](group::Lane& lane) {
    if (lane.rank() == 0) favour(lane, true);
    for (int call = 0; call < 64; ++call) static_cast<void>(one_collective(lane, kKind));
    EXPECT_FALSE(one_collective(lane, kKind));
    EXPECT_TRUE(one_collective(lane, kKind));
  });
}

}  // namespace
}  // namespace gyre::collectives::internal
