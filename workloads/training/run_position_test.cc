// A run that loses its place trains samples twice or not at all, and numbers its checkpoints wrongly.
#include "workloads/training/run_position.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gyre/base/error.h"

namespace gyre::training {
namespace {

TEST(RunPosition, an_epochs_last_step_is_as_small_as_what_is_left) {
  RunPosition position(4, 10);
  EXPECT_EQ(position.in_step(), "in step 1 of epoch 1");
  for (int step = 0; step < 3; ++step) position.pass_step();
  EXPECT_EQ(position.position(), 10U);
  EXPECT_EQ(position.samples(), 10U);
  EXPECT_EQ(position.after_step(), "after step 3 of epoch 1");
  EXPECT_FALSE(position.is_between_epochs());
  position.pass_epoch();
  EXPECT_TRUE(position.is_between_epochs());
  position.pass_step();
  EXPECT_EQ(position.samples(), 14U);
  EXPECT_EQ(position.step(), 4U);
  EXPECT_EQ(position.after_step(), "after step 1 of epoch 2");
}

TEST(RunPosition, what_nobody_has_trained_is_passed_and_not_counted) {
  RunPosition position(4, 10);
  position.pass_step();
  position.leave_out(1);
  position.set_step_size(3);
  position.pass_step();
  EXPECT_EQ(position.position(), 7U);
  EXPECT_EQ(position.samples(), 6U);
}

TEST(RunPosition, steps_of_another_size_go_on_at_the_next_sample) {
  RunPosition before(4, 10);
  before.pass_step();
  before.pass_step();
  RunPosition after(3, 10);
  after.restore(before.progress(), "images");
  EXPECT_EQ(after.position(), 8U);
  EXPECT_EQ(after.step(), 2U);
  EXPECT_EQ(after.step_in_epoch(), 2U);  // Of three images: as far as these have come.
  EXPECT_DOUBLE_EQ(after.steps_into_epoch(), 8.0 / 3);
  EXPECT_FALSE(after.has_stepped());
  after.pass_step();
  EXPECT_TRUE(after.has_stepped());
  EXPECT_EQ(after.samples(), 10U);
}

TEST(RunPosition, what_a_checkpoint_does_not_say_or_cannot_mean_is_an_error) {
  RunPosition position(4, 10);
  Progress progress = position.progress();
  progress.back().second = 11;
  EXPECT_THROW(position.restore(progress, "images"), Error);
  progress.pop_back();
  EXPECT_THROW(position.restore(progress, "images"), Error);
}

}  // namespace
}  // namespace gyre::training
