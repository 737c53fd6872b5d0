// "Queued for two hours, no reason given" is what users of every job service complain of: the answer must be true, and
// what it suggests must work.
#include "gyre/jobs/scheduler/explain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gyre/jobs/scheduler/internal/words.h"
#include "gyre/jobs/scheduler/state_test_support.h"

namespace gyre::jobs::scheduler {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;

Explanation explained(const World& world, JobId job) {
  const auto explanation = explain(job, world.state);
  EXPECT_TRUE(explanation);
  return explanation.value_or(Explanation{});
}

TEST(ExplainTest, counts_nodes_by_what_they_do_and_says_what_would_start_the_job) {
  World world(4);
  world.node(4).state = NodeReadiness::kPreparing;
  const JobId job = world.submit(4);
  const Explanation why = explained(world, job);
  EXPECT_EQ(why.reason, WaitReason::kNodes);
  EXPECT_EQ(why.text, "needs 4 nodes; 3 are idle, 1 is preparing; would start at once with 3 nodes");
  EXPECT_EQ(why.startable_node_count, 3);
  EXPECT_EQ(why.latest_start, std::nullopt);
}

TEST(ExplainTest, says_when_running_jobs_will_have_made_room) {
  World world(2);
  world.submit(2, hours(2));
  world.step();
  world.state.now = minutes(30);
  const Explanation why = explained(world, world.submit(1));
  EXPECT_EQ(why.text,
            "needs 1 node; none is idle, 2 are busy; running jobs reach their wall-clock limits and make room in "
            "1 h 30 min");
  EXPECT_EQ(why.latest_start, hours(2));
}

TEST(ExplainTest, the_latest_start_does_not_count_on_nodes_that_leave) {
  World world(4);
  world.submit(2, hours(1));
  world.submit(2, hours(3));
  world.step();
  world.cluster().scale = ManualScale{.target_node_count = 2, .deallocation = Deallocation::kWaitForCompletion};
  EXPECT_EQ(explained(world, world.submit(2)).latest_start, hours(3));
}

TEST(ExplainTest, names_the_job_that_would_be_delayed_and_the_limit_that_would_not_delay_it) {
  World world(4);
  world.submit(2, hours(2));
  world.step();
  world.submit(4, hours(1), Priority::kHigh);
  const JobId job = world.submit(2, hours(3));
  const Explanation why = explained(world, job);
  EXPECT_EQ(why.reason, WaitReason::kBehindOthers);
  EXPECT_EQ(
      why.text,
      "job 'j2' (high priority) is ahead of it and waits for 4 nodes; starting this one now could delay it; would "
      "start at once with a wall-clock limit of 2 h");
  EXPECT_EQ(why.startable_wall_clock_limit, hours(2));
}

TEST(ExplainTest, says_that_a_higher_priority_would_do) {
  World world(1);
  world.submit(1);
  const JobId job = world.submit(1, hours(1), Priority::kLow);
  const Explanation why = explained(world, job);
  EXPECT_EQ(why.startable_priority, Priority::kHigh);
  EXPECT_THAT(why.text, testing::HasSubstr("would start at once with high priority"));
}

TEST(ExplainTest, shows_the_quota_and_what_is_used_of_it) {
  World world(4, {.cores_per_node = 8});
  world.state.quotas = {{.workspace = "w", .cores = 24}};
  world.submit(2);
  world.step();
  const Explanation why = explained(world, world.submit(2));
  EXPECT_EQ(why.reason, WaitReason::kQuota);
  EXPECT_THAT(why.text,
              testing::StartsWith("needs 16 cores; workspace 'w' may use 24 dedicated cores at once and uses 16"));
  EXPECT_EQ(why.startable_node_count, 1);
}

TEST(ExplainTest, says_that_a_quota_or_a_cluster_will_never_do) {
  World world(2, {.cores_per_node = 8});
  const Explanation cluster = explained(world, world.submit(3));
  EXPECT_EQ(cluster.reason, WaitReason::kClusterTooSmall);
  EXPECT_EQ(
      cluster.text,
      "needs 3 nodes; cluster 'c1' is limited to 2; resize it to 3 or more nodes; would start at once with 2 nodes");
  world.state.quotas = {{.workspace = "w", .cores = 8}};
  const Explanation quota = explained(world, world.submit(2));
  EXPECT_EQ(quota.reason, WaitReason::kQuotaTooSmall);
  EXPECT_EQ(
      quota.text,
      "needs 16 cores; workspace 'w' may use 8 dedicated cores at once and uses 0; a larger quota would let it start; "
      "would start at once with 1 node");
}

TEST(ExplainTest, says_how_many_jobs_are_ahead) {
  World world(1);
  world.submit(1);
  world.step();
  world.submit(1);
  world.submit(1, hours(1), Priority::kHigh);
  const JobId job = world.submit(1);
  EXPECT_THAT(explained(world, job).text, testing::HasSubstr("2 jobs are ahead of it"));
}

TEST(ExplainTest, a_job_that_would_start_at_the_next_decision_starts_now) {
  World world(1);
  const Explanation why = explained(world, world.submit(1));
  EXPECT_EQ(why.reason, WaitReason::kStartsNow);
  EXPECT_EQ(why.latest_start, world.state.now);
}

TEST(ExplainTest, only_waiting_jobs_are_explained) {
  World world(1);
  const JobId job = world.submit(1);
  world.step();
  EXPECT_FALSE(explain(job, world.state));
  EXPECT_FALSE(explain(77, world.state));
}

TEST(ExplainTest, durations_have_at_most_two_units) {
  EXPECT_EQ(duration_text(hours(24 * 7)), "7 days");
  EXPECT_EQ(duration_text(hours(25) + minutes(3)), "1 day 1 h");
  EXPECT_EQ(duration_text(hours(2) + seconds(5)), "2 h");
  EXPECT_EQ(duration_text(minutes(1) + seconds(30)), "1 min 30 s");
  EXPECT_EQ(duration_text(Time(250)), "250 ms");
  EXPECT_EQ(duration_text(Time(0)), "0 s");
}

}  // namespace
}  // namespace gyre::jobs::scheduler
