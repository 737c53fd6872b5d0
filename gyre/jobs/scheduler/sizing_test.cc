// What happens to jobs and nodes when a cluster's size changes is a promise of Batch AI's three deallocation options.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gyre/jobs/scheduler/decide.h"
#include "gyre/jobs/scheduler/state_test_support.h"

namespace gyre::jobs::scheduler {
namespace {

using std::chrono::hours;
using testing::ElementsAre;
using testing::IsEmpty;

void shrink(World& world, int target, Deallocation deallocation) {
  world.cluster().scale = ManualScale{.target_node_count = target, .deallocation = deallocation};
}

TEST(SizingTest, missing_nodes_are_allocated_once) {
  World world(1, {.scale = ManualScale{.target_node_count = 4}});
  EXPECT_THAT(actions_of<AllocateNodes>(world.step()), ElementsAre(AllocateNodes{1, 3}));
  EXPECT_THAT(world.step(), IsEmpty());
}

TEST(SizingTest, a_leaving_or_lost_node_is_replaced) {
  World world(3);
  world.node(1).state = NodeReadiness::kLeaving;
  world.node(2).state = NodeReadiness::kLost;
  EXPECT_THAT(actions_of<AllocateNodes>(world.step()), ElementsAre(AllocateNodes{1, 2}));
}

TEST(SizingTest, unusable_nodes_leave_first_and_then_those_that_do_nothing) {
  World world(5);
  world.submit(1);
  world.step();  // Node 1.
  world.node(2).state = NodeReadiness::kUnusable;
  world.node(3).state = NodeReadiness::kPreparing;
  shrink(world, 2, Deallocation::kTerminate);
  EXPECT_THAT(actions_of<ReleaseNode>(world.step()), ElementsAre(ReleaseNode{2}, ReleaseNode{3}, ReleaseNode{5}));
  EXPECT_NE(world.running(1), nullptr);
}

TEST(SizingTest, a_released_node_is_not_given_to_a_job_of_the_same_moment) {
  World world(2);
  shrink(world, 1, Deallocation::kRequeue);
  world.submit(1);
  world.submit(1);
  const auto decisions = world.step();
  EXPECT_THAT(actions_of<ReleaseNode>(decisions), ElementsAre(ReleaseNode{2}));
  EXPECT_THAT(actions_of<StartJob>(decisions), ElementsAre(StartJob{1, 1, {1}}));
}

TEST(SizingTest, requeue_ends_the_job_that_loses_least_and_queues_it_again) {
  World world(3);
  world.submit(1, hours(9), Priority::kHigh);
  world.step();
  world.submit(1, hours(9), Priority::kLow);
  world.step();
  world.state.now = hours(1);
  const JobId latest_of_the_lowest = world.submit(1, hours(9), Priority::kLow);
  world.step();
  shrink(world, 2, Deallocation::kRequeue);
  const auto decisions = world.step();
  EXPECT_THAT(actions_of<RequeueJob>(decisions), ElementsAre(RequeueJob{latest_of_the_lowest, 1}));
  EXPECT_EQ(decisions.front().why, "cluster 'c1' shrinks from 3 to 2 nodes");
  // Its node leaves before anybody can have it.
  const auto next = world.step();
  EXPECT_THAT(actions_of<ReleaseNode>(next), ElementsAre(ReleaseNode{3}));
  EXPECT_THAT(actions_of<StartJob>(next), IsEmpty());
}

TEST(SizingTest, no_job_is_ended_that_does_not_need_to) {
  World world(5);
  const JobId large = world.submit(4);
  world.step();
  world.state.now = std::chrono::minutes(30);
  world.submit(1);
  world.step();
  shrink(world, 2, Deallocation::kRequeue);
  EXPECT_THAT(actions_of<RequeueJob>(decide(world.state)), ElementsAre(RequeueJob{large, 1}));
}

TEST(SizingTest, while_a_job_is_being_ended_no_other_is_ended_for_the_same_node) {
  World world(2);
  world.submit(1);
  const JobId later = world.submit(1);
  world.step();
  shrink(world, 1, Deallocation::kRequeue);
  EXPECT_THAT(actions_of<RequeueJob>(decide(world.state)), ElementsAre(RequeueJob{later, 1}));
  world.running(later)->ending = true;
  EXPECT_THAT(decide(world.state), IsEmpty());
}

TEST(SizingTest, terminate_ends_the_job_for_good) {
  World world(1);
  const JobId job = world.submit(1);
  world.step();
  shrink(world, 0, Deallocation::kTerminate);
  EXPECT_THAT(actions_of<TerminateJob>(world.step()), ElementsAre(TerminateJob{job, 1}));
  EXPECT_THAT(actions_of<ReleaseNode>(world.step()), ElementsAre(ReleaseNode{1}));
}

TEST(SizingTest, wait_for_job_completion_ends_nothing_and_starts_nothing_on_nodes_that_leave) {
  World world(4);
  const JobId first = world.submit(2);
  const JobId second = world.submit(2);
  const JobId waits = world.submit(2);
  world.step();
  shrink(world, 2, Deallocation::kWaitForCompletion);
  EXPECT_THAT(world.step(), IsEmpty());
  world.take_off(first);
  const auto decisions = world.step();
  EXPECT_THAT(actions_of<ReleaseNode>(decisions), ElementsAre(ReleaseNode{2}, ReleaseNode{1}));
  EXPECT_THAT(actions_of<StartJob>(decisions), IsEmpty());
  world.take_off(second);
  EXPECT_THAT(world.started_by_step(), ElementsAre(waits));
}

TEST(SizingTest, an_automatic_size_follows_waiting_and_running_jobs_within_its_limits) {
  World world(0, {.scale = AutoScale{.minimum_node_count = 1, .maximum_node_count = 4}});
  EXPECT_THAT(actions_of<AllocateNodes>(world.step()), ElementsAre(AllocateNodes{1, 1}));
  world.submit(2);
  const JobId second = world.submit(3);
  EXPECT_THAT(actions_of<AllocateNodes>(world.step()), ElementsAre(AllocateNodes{1, 3}));
  for (Node& node : world.state.nodes) node.state = NodeReadiness::kReady;
  world.step();
  EXPECT_EQ(world.running(second), nullptr);
  world.take_off(1);
  const auto decisions = world.step();
  EXPECT_THAT(actions_of<ReleaseNode>(decisions), ElementsAre(ReleaseNode{4}));
  EXPECT_THAT(actions_of<StartJob>(decisions), ElementsAre(StartJob{second, 1, {1, 2, 3}}));
  EXPECT_THAT(world.step(), IsEmpty());
  world.take_off(second);
  EXPECT_THAT(actions_of<ReleaseNode>(world.step()), ElementsAre(ReleaseNode{3}, ReleaseNode{2}));
}

TEST(SizingTest, an_automatic_size_never_ends_a_job) {
  World world(2, {.scale = AutoScale{.minimum_node_count = 0, .maximum_node_count = 2}});
  world.submit(2);
  world.step();
  world.cluster().scale = AutoScale{.minimum_node_count = 0, .maximum_node_count = 1};
  EXPECT_THAT(world.step(), IsEmpty());
}

TEST(SizingTest, a_job_that_can_never_start_brings_no_nodes) {
  World world(0, {.scale = AutoScale{.minimum_node_count = 0, .maximum_node_count = 4}});
  world.submit(5);
  EXPECT_THAT(world.step(), IsEmpty());
}

}  // namespace
}  // namespace gyre::jobs::scheduler
