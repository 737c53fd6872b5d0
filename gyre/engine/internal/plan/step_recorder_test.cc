// What a person reads in `gyre explain` is only as true as this bookkeeping: one step, times given by hand.
#include "gyre/engine/internal/plan/step_recorder.h"

#include <gtest/gtest.h>

namespace gyre::engine::internal {
namespace {

using std::chrono::milliseconds;

StepRecorder::Time at(int ms) { return StepRecorder::Time(milliseconds(1000 + ms)); }

TEST(StepRecorderTest, tells_what_of_the_exchange_was_hidden_behind_backward) {
  StepRecorder recorder({.name = "p", .buckets = std::vector<BucketStatistics>(3)});
  recorder.contribution(at(0));
  recorder.bucket_ready(1, at(4));  // Before bucket 0: it must wait for its turn.
  recorder.bucket_ready(0, at(10));
  recorder.bucket_started(0, at(11));
  recorder.bucket_ended(0, at(21));
  recorder.bucket_started(1, at(21));
  recorder.closing(at(25), 2);
  recorder.bucket_ready(2, at(25));
  recorder.bucket_ended(1, at(31));
  recorder.bucket_started(2, at(31));
  recorder.bucket_ended(2, at(40));
  recorder.finished(at(41));

  const PlanStatistics& plan = recorder.statistics();
  EXPECT_EQ(plan.steps, 1U);
  EXPECT_EQ(plan.last.backward, milliseconds(25));
  EXPECT_EQ(plan.last.exchange, milliseconds(10 + 10 + 9));
  EXPECT_EQ(plan.last.hidden, milliseconds(10 + 4));
  EXPECT_EQ(plan.last.exposed, milliseconds(16));
  EXPECT_EQ(plan.last.overtaken_buckets, 1U);
  EXPECT_EQ(plan.last.missing_tensors, 2U);
  EXPECT_EQ(plan.buckets[1].ready, milliseconds(4));
  EXPECT_EQ(plan.buckets[1].start, milliseconds(21));
  EXPECT_EQ(plan.buckets[1].end, milliseconds(31));
}

TEST(StepRecorderTest, every_step_begins_anew_and_the_totals_grow) {
  StepRecorder recorder({.name = "p", .buckets = std::vector<BucketStatistics>(1)});
  for (int step = 0; step < 3; ++step) {
    const int begin = 100 * step;
    recorder.closing(at(begin), 1);  // Nothing was contributed before.
    recorder.bucket_ready(0, at(begin));
    recorder.bucket_started(0, at(begin + 1));
    recorder.bucket_ended(0, at(begin + 3));
    recorder.finished(at(begin + 4));
    EXPECT_EQ(recorder.statistics().last.exposed, milliseconds(4));
    EXPECT_EQ(recorder.statistics().last.hidden, milliseconds(0));
    EXPECT_EQ(recorder.statistics().buckets[0].end, milliseconds(3));
  }
  EXPECT_EQ(recorder.statistics().steps, 3U);
  EXPECT_EQ(recorder.statistics().total.exchange, milliseconds(6));
  EXPECT_EQ(recorder.statistics().total.missing_tensors, 3U);
  EXPECT_EQ(recorder.statistics().total.overtaken_buckets, 0U);
}

}  // namespace
}  // namespace gyre::engine::internal
