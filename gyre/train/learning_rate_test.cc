// A wrong learning rate still trains, only worse: the schedule is held to numbers worked out by hand.
#include "gyre/train/learning_rate.h"

#include <gtest/gtest.h>

namespace gyre::train {
namespace {

TEST(EpochSchedule, climbs_step_by_step_as_goyal_has_it_and_falls_at_the_boundaries) {
  const EpochSchedule schedule{.base = 0.1, .peak = 0.5, .warmup_epochs = 2, .factors = {{3, 0.1}, {5, 0.01}}};
  EXPECT_DOUBLE_EQ(schedule.at(0, 0), 0.1);
  EXPECT_DOUBLE_EQ(schedule.at(0, 0.5), 0.2);
  EXPECT_DOUBLE_EQ(schedule.at(1, 0.5), 0.4);
  EXPECT_DOUBLE_EQ(schedule.at(2, 0), 0.5);
  EXPECT_DOUBLE_EQ(schedule.at(2, 0.5), 0.5);
  EXPECT_DOUBLE_EQ(schedule.at(3, 0), 0.05);
  EXPECT_DOUBLE_EQ(schedule.at(4, 0.9), 0.05);
  EXPECT_DOUBLE_EQ(schedule.at(1000, 0), 0.005);
}

TEST(EpochSchedule, climbs_once_an_epoch_as_keras_has_it) {
  const EpochSchedule schedule{.base = 0.001, .peak = 0.003, .warmup_epochs = 4, .warmup_unit = WarmupUnit::kEpoch};
  EXPECT_DOUBLE_EQ(schedule.at(0, 0.9), 0.001);
  EXPECT_DOUBLE_EQ(schedule.at(1, 0), 0.0015);
  EXPECT_DOUBLE_EQ(schedule.at(3, 0.9), 0.0025);
  EXPECT_DOUBLE_EQ(schedule.at(4, 0), 0.003);
}

}  // namespace
}  // namespace gyre::train
