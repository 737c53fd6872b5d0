// Ranks that are left divide the samples among themselves: each has to find the same ranks, and its own place.
#include "workloads/training/survivors.h"

#include <gtest/gtest.h>

namespace gyre::training {
namespace {

TEST(Survivors, learn_from_the_sum_of_presences_who_has_died_and_take_the_places_that_are_free) {
  Survivors survivors(4);
  EXPECT_EQ(survivors.count(), 4);
  EXPECT_EQ(survivors.presence(2), (std::vector<double>{0, 0, 1, 0}));
  EXPECT_TRUE(survivors.note(std::vector<double>{1, 1, 1, 1}).empty());
  EXPECT_EQ(survivors.note(std::vector<double>{1, 0, 1, 1}), std::vector<int>{1});
  EXPECT_TRUE(survivors.note(std::vector<double>{1, 0, 1, 1}).empty()) << "it has been said";
  EXPECT_EQ(survivors.count(), 3);
  EXPECT_FALSE(survivors.has(1));
  EXPECT_EQ(survivors.place_of(0), 0);
  EXPECT_EQ(survivors.place_of(2), 1);
  EXPECT_EQ(survivors.place_of(3), 2);
  EXPECT_EQ(survivors.note(std::vector<double>{1, 0, 0, 0}), (std::vector<int>{2, 3}));
  EXPECT_EQ(survivors.count(), 1);
}

TEST(Survivors, deaths_are_said_in_words) {
  EXPECT_EQ(describe_deaths({2}), "worker 2 has died");
  EXPECT_EQ(describe_deaths({1, 3}), "workers 1, 3 have died");
}

}  // namespace
}  // namespace gyre::training
