// A wrong learning rate still trains, only worse: the schedule is held to numbers worked out by hand.
#include "gyre/train/learning_rate.h"

#include <gtest/gtest.h>

namespace gyre::train {
namespace {

TEST(LearningRate, without_scaling_it_is_the_base_rate) {
  const LearningRateSchedule schedule{.base = 1e-4};
  EXPECT_EQ(schedule.at(0), 1e-4);
  EXPECT_EQ(schedule.at(1'000'000), 1e-4);
}

TEST(LearningRate, warm_up_climbs_from_the_base_rate_to_the_scaled_one) {
  const LearningRateSchedule schedule{.base = 0.1, .scale = 5, .warmup_steps = 4};
  EXPECT_DOUBLE_EQ(schedule.at(0), 0.1);
  EXPECT_DOUBLE_EQ(schedule.at(1), 0.2);
  EXPECT_DOUBLE_EQ(schedule.at(3), 0.4);
  EXPECT_DOUBLE_EQ(schedule.at(4), 0.5);
  EXPECT_DOUBLE_EQ(schedule.at(99), 0.5);
}

}  // namespace
}  // namespace gyre::train
