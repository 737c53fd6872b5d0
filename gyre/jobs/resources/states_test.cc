// Which states may follow which is what clients rely on (jobs of Batch AI end once, and never come back).
#include "gyre/jobs/resources/states.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "gyre/base/error.h"

namespace gyre::jobs::resources {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

template <typename State>
std::vector<std::string> changes_of(State from, int states) {
  std::vector<std::string> found;
  for (int to = 0; to < states; ++to) {
    if (may_change(from, static_cast<State>(to))) found.emplace_back(name(static_cast<State>(to)));
  }
  return found;
}

TEST(StatesTest, a_job_changes_as_batch_ai_says) {
  const auto changes = [](ExecutionState from) { return changes_of(from, 5); };
  EXPECT_THAT(changes(ExecutionState::kQueued), ElementsAre("running", "terminating", "failed"));
  EXPECT_THAT(changes(ExecutionState::kRunning), ElementsAre("queued", "terminating", "succeeded", "failed"));
  EXPECT_THAT(changes(ExecutionState::kTerminating), ElementsAre("succeeded", "failed"));
  EXPECT_THAT(changes(ExecutionState::kSucceeded), IsEmpty());
  EXPECT_THAT(changes(ExecutionState::kFailed), ElementsAre("queued"));
}

TEST(StatesTest, an_attempt_is_never_younger_than_it_was) {
  const auto changes = [](AttemptState from) { return changes_of(from, 4); };
  EXPECT_THAT(changes(AttemptState::kPlanned), ElementsAre("started", "ending", "ended"));
  EXPECT_THAT(changes(AttemptState::kStarted), ElementsAre("ending", "ended"));
  EXPECT_THAT(changes(AttemptState::kEnding), ElementsAre("ended"));
  EXPECT_THAT(changes(AttemptState::kEnded), IsEmpty());
}

TEST(StatesTest, a_node_with_a_job_can_neither_leave_nor_be_idle_at_once) {
  const auto changes = [](NodeState from) { return changes_of(from, 7); };
  EXPECT_THAT(changes(NodeState::kAllocating), ElementsAre("preparing", "unusable", "leaving", "lost"));
  EXPECT_THAT(changes(NodeState::kPreparing), ElementsAre("idle", "unusable", "leaving", "lost"));
  EXPECT_THAT(changes(NodeState::kIdle), ElementsAre("preparing", "running", "unusable", "leaving", "lost"));
  EXPECT_THAT(changes(NodeState::kRunning), ElementsAre("preparing", "lost"));
  EXPECT_THAT(changes(NodeState::kUnusable), ElementsAre("preparing", "leaving", "lost"));
  EXPECT_THAT(changes(NodeState::kLeaving), ElementsAre("lost"));
  EXPECT_THAT(changes(NodeState::kLost), ElementsAre("preparing", "leaving"));
}

TEST(StatesTest, what_is_being_deleted_does_not_come_back) {
  EXPECT_THAT(changes_of(ProvisioningState::kCreating, 4), ElementsAre("succeeded", "failed", "deleting"));
  EXPECT_THAT(changes_of(ProvisioningState::kSucceeded, 4), ElementsAre("deleting"));
  EXPECT_THAT(changes_of(ProvisioningState::kFailed, 4), ElementsAre("deleting"));
  EXPECT_THAT(changes_of(ProvisioningState::kDeleting, 4), IsEmpty());
  EXPECT_THAT(changes_of(AllocationState::kSteady, 2), ElementsAre("resizing"));
  EXPECT_THAT(changes_of(AllocationState::kResizing, 2), ElementsAre("steady"));
}

TEST(StatesTest, every_name_leads_back_to_its_state) {
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(static_cast<int>(state_named<ProvisioningState>(name(static_cast<ProvisioningState>(i)))), i);
    EXPECT_EQ(static_cast<int>(state_named<AttemptState>(name(static_cast<AttemptState>(i)))), i);
  }
  for (int i = 0; i < 5; ++i)
    EXPECT_EQ(static_cast<int>(state_named<ExecutionState>(name(static_cast<ExecutionState>(i)))), i);
  for (int i = 0; i < 7; ++i) EXPECT_EQ(static_cast<int>(state_named<NodeState>(name(static_cast<NodeState>(i)))), i);
  EXPECT_THROW(state_named<NodeState>("dreaming"), Error);
}

}  // namespace
}  // namespace gyre::jobs::resources
