// What users notice of the scheduler: who starts, who is overtaken and by whom, and what happens when nodes or time run
// out.
#include "gyre/jobs/scheduler/decide.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gyre/jobs/scheduler/state_test_support.h"

namespace gyre::jobs::scheduler {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using testing::ElementsAre;
using testing::IsEmpty;

TEST(DecideTest, a_job_starts_on_as_many_idle_nodes_as_it_needs) {
  World world(4);
  const JobId job = world.submit(3);
  const auto starts = actions_of<StartJob>(world.step());
  EXPECT_THAT(starts, ElementsAre(StartJob{job, 1, {1, 2, 3}}));
}

TEST(DecideTest, a_job_never_starts_on_a_part_of_its_nodes) {
  // K jobs with some of their nodes each would wait for each other for ever.
  World world(3);
  world.submit(4);
  world.cluster().scale = ManualScale{.target_node_count = 4};
  EXPECT_THAT(actions_of<StartJob>(world.step()), IsEmpty());
}

TEST(DecideTest, only_ready_nodes_are_given_to_jobs) {
  World world(5);
  world.submit(2);
  world.node(1).state = NodeReadiness::kPreparing;
  world.node(2).state = NodeReadiness::kUnusable;
  world.node(3).state = NodeReadiness::kLeaving;
  world.node(4).state = NodeReadiness::kLost;
  EXPECT_THAT(world.started_by_step(), IsEmpty());
}

TEST(DecideTest, jobs_start_in_the_order_of_submission) {
  World world(2);
  const JobId first = world.submit(1);
  const JobId second = world.submit(1);
  const JobId third = world.submit(1);
  std::ranges::reverse(world.state.waiting);
  EXPECT_THAT(world.started_by_step(), ElementsAre(first, second));
  world.take_off(first);
  EXPECT_THAT(world.started_by_step(), ElementsAre(third));
}

TEST(DecideTest, a_higher_priority_goes_first) {
  World world(1);
  const JobId low = world.submit(1, hours(1), Priority::kLow);
  const JobId normal = world.submit(1, hours(1), Priority::kNormal);
  const JobId high = world.submit(1, hours(1), Priority::kHigh);
  for (const JobId expected : {high, normal, low}) {
    EXPECT_THAT(world.started_by_step(), ElementsAre(expected));
    world.take_off(expected);
  }
}

TEST(DecideTest, a_running_job_is_not_ended_for_a_higher_priority) {
  World world(1);
  world.submit(1, hours(1), Priority::kLow);
  world.step();
  world.submit(1, hours(1), Priority::kHigh);
  EXPECT_THAT(world.step(), IsEmpty());
}

TEST(DecideTest, a_short_job_may_overtake_a_head_that_cannot_start_before_its_end) {
  World world(4);
  world.submit(2, hours(2));
  world.step();
  world.submit(4, hours(1));  // The head: in two hours.
  const JobId in_time = world.submit(2, hours(2));
  const auto decisions = world.step();
  EXPECT_THAT(actions_of<StartJob>(decisions), ElementsAre(StartJob{in_time, 1, {3, 4}}));
  EXPECT_EQ(decisions.front().reason, Reason::kBackfill);
}

TEST(DecideTest, a_job_that_would_end_too_late_does_not_overtake) {
  World world(4);
  world.submit(2, hours(2));
  world.step();
  world.submit(4, hours(1));
  world.submit(2, hours(2) + Time(1));
  EXPECT_THAT(world.step(), IsEmpty());
}

TEST(DecideTest, a_long_job_may_overtake_on_nodes_that_the_head_does_not_need) {
  World world(4);
  world.submit(2, hours(2));
  world.step();
  world.submit(3, hours(1));  // In two hours, and then one node of four is spare.
  const JobId on_the_spare_one = world.submit(1, hours(100));
  world.submit(1, hours(100));
  EXPECT_THAT(world.started_by_step(), ElementsAre(on_the_spare_one));
}

TEST(DecideTest, nothing_overtakes_a_head_that_nodes_being_prepared_could_serve) {
  // Nobody knows when they are ready: it may be now.
  World world(3);
  world.node(3).state = NodeReadiness::kPreparing;
  const JobId head = world.submit(3);
  world.submit(1, minutes(1));
  EXPECT_THAT(world.step(), IsEmpty());
  world.node(3).state = NodeReadiness::kReady;
  EXPECT_THAT(world.started_by_step(), ElementsAre(head));
}

TEST(DecideTest, a_job_larger_than_its_cluster_is_in_nobodys_way) {
  World world(2);
  world.submit(3, hours(1), Priority::kHigh);
  const JobId small = world.submit(2, hours(100), Priority::kLow);
  EXPECT_THAT(world.started_by_step(), ElementsAre(small));
}

TEST(DecideTest, clusters_have_queues_of_their_own) {
  World world(2);
  const ClusterId other = world.add_cluster(1);
  world.submit(2);
  world.step();
  world.submit(2, hours(1), Priority::kHigh);
  const JobId elsewhere = world.submit(1, hours(100), Priority::kLow, other);
  EXPECT_THAT(world.started_by_step(), ElementsAre(elsewhere));
}

TEST(DecideTest, a_workspace_uses_no_more_cores_than_its_quota) {
  World world(4, {.cores_per_node = 8});
  world.state.quotas = {{.workspace = "w", .cores = 16}};
  const JobId first = world.submit(1);
  const JobId second = world.submit(1);
  const JobId third = world.submit(1);
  const JobId of_others = world.submit(1, hours(1), Priority::kNormal, 1, "other");
  EXPECT_THAT(world.started_by_step(), ElementsAre(first, second, of_others));
  world.take_off(second);
  EXPECT_THAT(world.started_by_step(), ElementsAre(third));
}

TEST(DecideTest, low_priority_nodes_have_a_quota_of_their_own) {
  World world(2, {.node_priority = NodePriority::kLowPriority});
  world.state.quotas = {{"w", NodePriority::kDedicated, 0}, {"w", NodePriority::kLowPriority, 1}};
  const JobId first = world.submit(1);
  world.submit(1);
  EXPECT_THAT(world.started_by_step(), ElementsAre(first));
}

TEST(DecideTest, a_head_that_waits_for_its_quota_is_not_delayed_on_another_cluster) {
  // The same workspace's cores are wanted in two clusters; whoever came first has the first claim to them.
  World world(4);
  const ClusterId other = world.add_cluster(4);
  world.state.quotas = {{"w", NodePriority::kDedicated, 4}};
  const JobId runs = world.submit(2, hours(2));
  world.step();
  const JobId head = world.submit(4);
  world.submit(1, hours(3), Priority::kNormal, other);
  const JobId in_time = world.submit(1, hours(1), Priority::kNormal, other);
  EXPECT_THAT(world.started_by_step(), ElementsAre(in_time));
  world.take_off(in_time);
  world.take_off(runs);
  EXPECT_THAT(world.started_by_step(), ElementsAre(head));
}

TEST(DecideTest, an_attempt_is_ended_at_its_wall_clock_limit_and_not_before) {
  World world(1);
  const JobId job = world.submit(1, hours(1));
  world.step();
  world.state.now = hours(1) - Time(1);
  EXPECT_THAT(world.step(), IsEmpty());
  world.state.now = hours(1);
  const auto decisions = world.step();
  EXPECT_THAT(actions_of<TerminateJob>(decisions), ElementsAre(TerminateJob{job, 1}));
  EXPECT_EQ(decisions.front().reason, Reason::kWallClockLimit);
  EXPECT_EQ(decisions.front().why, "it reached its wall-clock limit of 1 h");
}

TEST(DecideTest, an_attempt_that_is_being_ended_is_left_alone_and_keeps_its_nodes) {
  World world(1);
  const JobId job = world.submit(1, hours(1));
  world.step();
  world.running(job)->ending = true;
  world.state.now = hours(5);
  world.node(1).state = NodeReadiness::kLost;
  world.submit(1);
  EXPECT_THAT(actions_of<TerminateJob>(decide(world.state)), IsEmpty());
  EXPECT_THAT(actions_of<RequeueJob>(decide(world.state)), IsEmpty());
  world.node(1).state = NodeReadiness::kReady;
  EXPECT_THAT(decide(world.state), IsEmpty());
}

TEST(DecideTest, a_job_that_loses_a_node_goes_back_to_its_old_place) {
  World world(2);
  const JobId job = world.submit(2);
  world.step();
  const JobId later = world.submit(1);
  world.node(2).state = NodeReadiness::kLost;
  const auto decisions = world.step();
  EXPECT_THAT(actions_of<RequeueJob>(decisions), ElementsAre(RequeueJob{job, 1}));
  EXPECT_EQ(decisions.front().why, "node 2 was lost");
  EXPECT_THAT(actions_of<AllocateNodes>(decisions), ElementsAre(AllocateNodes{1, 1}));
  world.node(3).state = NodeReadiness::kReady;
  EXPECT_THAT(actions_of<StartJob>(world.step()), ElementsAre(StartJob{job, 2, {1, 3}}));
  EXPECT_NE(world.waiting(later), nullptr);
}

TEST(DecideTest, a_low_priority_node_that_vanishes_is_a_lost_node) {
  // It is not marked as lost: it is not there any more.
  World world(2, {.node_priority = NodePriority::kLowPriority});
  const JobId job = world.submit(2);
  world.step();
  world.state.nodes.pop_back();
  EXPECT_THAT(actions_of<RequeueJob>(world.step()), ElementsAre(RequeueJob{job, 1}));
}

TEST(DecideTest, a_job_that_has_used_up_its_attempts_ends_when_a_node_is_lost) {
  World world(1);
  const JobId job = world.submit(1);
  world.waiting(job)->max_attempts = 2;
  world.step();
  world.node(1).state = NodeReadiness::kLost;
  EXPECT_THAT(actions_of<RequeueJob>(world.step()), ElementsAre(RequeueJob{job, 1}));
  world.node(2).state = NodeReadiness::kReady;
  world.step();
  world.node(2).state = NodeReadiness::kLost;
  const auto decisions = world.step();
  EXPECT_THAT(actions_of<TerminateJob>(decisions), ElementsAre(TerminateJob{job, 2}));
  EXPECT_EQ(decisions.front().reason, Reason::kAttemptsUsedUp);
}

TEST(DecideTest, the_order_of_the_state_does_not_matter) {
  World world(3);
  world.add_cluster(2);
  for (int i = 0; i < 4; ++i) world.submit(1 + i % 2, hours(1 + i), Priority::kNormal, 1 + i % 2);
  const auto decisions = decide(world.state);
  std::ranges::reverse(world.state.nodes);
  std::ranges::reverse(world.state.waiting);
  std::ranges::reverse(world.state.clusters);
  EXPECT_EQ(decide(world.state), decisions);
}

TEST(DecideTest, there_is_nothing_to_add_to_decisions_that_are_done) {
  World world(3, {.scale = ManualScale{.target_node_count = 5}});
  for (int i = 0; i < 4; ++i) world.submit(1 + i % 2);
  EXPECT_FALSE(world.step().empty());
  EXPECT_THAT(world.step(), IsEmpty());
}

}  // namespace
}  // namespace gyre::jobs::scheduler
