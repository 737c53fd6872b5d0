// The service's view of an attempt decides who runs and what the job's one error is; late and doubled news must not
// change it.
#include "gyre/jobs/hub/attempt_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gyre::jobs::hub {

using orders::NodeReport;
using orders::Phase;
using orders::StopReason;
using orders::WorkOrder;

namespace {

using testing::ElementsAre;
using enum NodeCommand;

WorkOrder two_nodes() {
  WorkOrder order;
  order.attempt = "a1";
  order.nodes = {{"n0", "127.0.0.2", 1, 0}, {"n1", "127.0.0.3", 1, 0}};
  return order;
}

NodeReport at(Phase phase) {
  NodeReport report;
  report.attempt = "a1";
  report.phase = phase;
  if (phase >= Phase::kPrepared) report.facts.emplace();
  return report;
}

NodeReport ended(int exit_code, const char* error = nullptr, bool asked = false) {
  NodeReport report = at(Phase::kEnded);
  report.record.emplace();
  report.record->exit_code = exit_code;
  report.record->asked_to_end = asked;
  report.record->started_us = 5;
  report.record->ended_us = 9;
  if (error != nullptr) report.record->error = resources::ResourceError{error, "it failed", {}};
  return report;
}

std::vector<NodeCommand> commands(const AttemptRun& run) { return {run.command_for(0), run.command_for(1)}; }

TEST(AttemptRun, nodes_go_through_the_phases_together) {
  AttemptRun run(two_nodes());
  EXPECT_THAT(commands(run), ElementsAre(kPrepare, kPrepare));
  run.report(0, at(Phase::kPreparing));
  run.report(0, at(Phase::kPrepared));
  EXPECT_THAT(commands(run), ElementsAre(kNone, kPrepare));
  run.report(1, at(Phase::kPrepared));
  EXPECT_THAT(commands(run), ElementsAre(kRun, kRun));
  run.report(0, at(Phase::kRunning));
  run.report(1, at(Phase::kDone));
  EXPECT_TRUE(run.running());
  EXPECT_THAT(commands(run), ElementsAre(kNone, kNone));
  run.report(0, at(Phase::kDone));
  EXPECT_THAT(commands(run), ElementsAre(kFinish, kFinish));
  run.report(0, ended(0));
  EXPECT_FALSE(run.ended());
  EXPECT_EQ(run.command_for(1), kFinish);
  run.report(1, ended(0));
  ASSERT_TRUE(run.ended());
  EXPECT_TRUE(run.result().succeeded());
  EXPECT_THAT(commands(run), ElementsAre(kNone, kNone));
  run.acknowledge();
  EXPECT_THAT(commands(run), ElementsAre(kForget, kForget));
}

TEST(AttemptRun, the_first_failure_ends_the_others_and_is_the_one_error) {
  AttemptRun run(two_nodes());
  for (const int node : {0, 1}) run.report(node, at(Phase::kPrepared));
  run.report(1, ended(7, resources::error_code::kJobFailed));
  EXPECT_THAT(commands(run), ElementsAre(kStop, kNone));
  EXPECT_EQ(run.stop_reason(), StopReason::kOtherNode);
  run.report(0, ended(143, nullptr, true));
  EXPECT_EQ(run.result().exit_code, 7);
  EXPECT_EQ(run.result().error->code, "JobFailed");
  EXPECT_FALSE(run.result().preempted);
}

TEST(AttemptRun, late_and_doubled_news_change_nothing) {
  AttemptRun run(two_nodes());
  run.report(0, at(Phase::kRunning));
  run.report(0, at(Phase::kPrepared));
  run.report(1, at(Phase::kRunning));
  EXPECT_TRUE(run.running());
  run.report(0, ended(1, resources::error_code::kJobFailed));
  run.report(0, ended(2, resources::error_code::kInternal));
  run.report(1, ended(143, nullptr, true));
  EXPECT_EQ(run.result().exit_code, 1);
}

// A node program that dies, restarts and is late with everything else must be told again what it has to do.
TEST(AttemptRun, what_a_node_has_to_do_follows_from_the_reports_alone) {
  AttemptRun run(two_nodes());
  run.report(0, at(Phase::kRunning));
  run.report(1, at(Phase::kPrepared));
  EXPECT_THAT(commands(run), ElementsAre(kNone, kRun));
}

// "All nodes are prepared; the job runs" was shown although the preparation had failed.
TEST(AttemptRun, a_job_whose_preparation_failed_on_one_node_has_never_run) {
  AttemptRun run(two_nodes());
  run.report(0, at(Phase::kPrepared));
  NodeReport failed = ended(3, resources::error_code::kPreparationFailed);
  failed.facts.reset();
  run.report(1, failed);
  run.report(0, ended(143, nullptr, true));
  ASSERT_TRUE(run.ended());
  EXPECT_FALSE(run.running());
  EXPECT_EQ(run.result().exit_code, 3);
}

TEST(AttemptRun, a_lost_node_is_an_internal_error_and_named) {
  AttemptRun run(two_nodes());
  run.report(0, at(Phase::kRunning));
  run.lose(1, "it was switched off");
  EXPECT_EQ(run.command_for(0), kStop);
  run.report(0, ended(143, nullptr, true));
  EXPECT_EQ(run.result().error->code, "InternalError");
  EXPECT_THAT(run.result().lost, ElementsAre("n1"));
}

TEST(AttemptRun, a_preempted_attempt_has_no_error) {
  AttemptRun run(two_nodes());
  for (const int node : {0, 1}) run.report(node, at(Phase::kRunning));
  run.stop(StopReason::kPreempted, std::chrono::seconds(10));
  EXPECT_EQ(run.stop_grace(), std::chrono::seconds(10));
  for (const int node : {0, 1}) run.report(node, ended(143, nullptr, true));
  EXPECT_TRUE(run.result().preempted);
  EXPECT_FALSE(run.result().succeeded());
}

// A job that had succeeded on all nodes failed when the service was killed just then.
TEST(AttemptRun, after_a_restart_of_the_service_the_first_nodes_end_may_come_before_any_news_of_the_others) {
  AttemptRun run(two_nodes());
  run.report(0, ended(0));
  EXPECT_THAT(commands(run), ElementsAre(kNone, kPrepare));
  run.report(1, at(Phase::kDone));
  EXPECT_THAT(commands(run), ElementsAre(kNone, kFinish));
  run.report(1, ended(0));
  ASSERT_TRUE(run.ended());
  EXPECT_TRUE(run.result().succeeded());
}

// Likewise, when the service and the second node's program were killed just then: the node program follows its
// processes again.
TEST(AttemptRun, a_node_program_that_was_done_before_it_was_killed_may_report_an_earlier_phase_to_a_new_service) {
  for (const bool end_comes_first : {true, false}) {
    AttemptRun run(two_nodes());
    if (end_comes_first) run.report(0, ended(0));
    run.report(1, at(Phase::kRunning));
    if (!end_comes_first) run.report(0, ended(0));
    EXPECT_THAT(commands(run), ElementsAre(kNone, kNone));
    run.report(1, at(Phase::kDone));
    EXPECT_THAT(commands(run), ElementsAre(kNone, kFinish));
    run.report(1, ended(0));
    EXPECT_TRUE(run.result().succeeded());
  }
}

// The logs belong to what a job leaves: its end is told when they are there.
TEST(AttemptRun, an_attempt_is_complete_when_its_nodes_have_sent_their_logs) {
  AttemptRun run(two_nodes());
  NodeReport sends = ended(0);
  sends.sends_logs = true;
  run.report(0, sends);
  run.report(1, sends);
  EXPECT_TRUE(run.ended());
  EXPECT_FALSE(run.complete());
  run.report(0, ended(0));
  EXPECT_FALSE(run.complete());
  run.report(1, ended(0));
  EXPECT_TRUE(run.complete());
}

TEST(AttemptRun, a_node_that_is_lost_after_the_end_takes_only_the_rest_of_its_logs_with_it) {
  AttemptRun run(two_nodes());
  NodeReport sends = ended(0);
  sends.sends_logs = true;
  run.report(0, sends);
  run.report(1, ended(0));
  run.lose(0, "it was switched off");
  EXPECT_TRUE(run.complete());
  EXPECT_TRUE(run.result().succeeded());
  EXPECT_THAT(run.result().lost, testing::IsEmpty());
  EXPECT_EQ(run.notes().size(), 1U);
}

// The ranks of the second node are started by the first node's `gyre run`, through a shell of the second: with it they
// were killed at once, whatever the grace.
TEST(AttemptRun, a_node_without_processes_of_its_own_serves_until_the_others_have_ended) {
  AttemptRun run(two_nodes());
  run.report(0, at(Phase::kRunning));
  run.report(1, at(Phase::kDone));
  run.stop(StopReason::kRequest, std::chrono::seconds(5));
  EXPECT_THAT(commands(run), ElementsAre(kStop, kNone));
  run.report(0, ended(137, resources::error_code::kJobFailed, true));
  EXPECT_THAT(commands(run), ElementsAre(kNone, kStop));
  run.report(1, ended(137, nullptr, true));
  EXPECT_EQ(run.result().error->code, "JobFailed");
}

TEST(AttemptRun, without_a_grace_all_nodes_end_at_once) {
  AttemptRun run(two_nodes());
  run.report(0, at(Phase::kRunning));
  run.report(1, at(Phase::kDone));
  run.stop(StopReason::kRequest, std::chrono::seconds(5));
  run.stop(StopReason::kRequest, std::chrono::seconds(0));
  EXPECT_THAT(commands(run), ElementsAre(kStop, kStop));
}

NodeReport lost_lease(bool was_done, std::int64_t ended_us) {
  NodeReport report = ended(125, resources::error_code::kInternal, true);
  report.record->error->details["reason"] = name_of(StopReason::kLeaseLost);
  report.record->was_done = was_done;
  report.record->ended_us = ended_us;
  return report;
}

NodeReport failed_at(std::int64_t ended_us) {
  NodeReport report = ended(5, resources::error_code::kJobFailed);
  report.record->ended_us = ended_us;
  return report;
}

// A job that had succeeded while the service was away for longer than its lease ran a second time.
TEST(AttemptRun, what_had_ended_before_leases_were_lost_counts_whichever_node_tells_first) {
  struct Case {
    NodeReport first;
    NodeReport second;
    const char* error;  // Nothing: it has succeeded.
  };
  const std::vector<Case> cases = {
      {lost_lease(true, 20), lost_lease(true, 21), nullptr},
      {ended(0), lost_lease(true, 20), nullptr},
      {failed_at(19), lost_lease(true, 20), "JobFailed"},
      {failed_at(21), lost_lease(true, 20), "InternalError"},  // Its ranks there were killed.
      {lost_lease(false, 20), lost_lease(true, 20), "InternalError"},
      {lost_lease(false, 20), lost_lease(false, 20), "InternalError"},
      {ended(143, nullptr, true), lost_lease(true, 20), "InternalError"},
  };
  for (const Case& each : cases) {
    for (const bool swapped : {false, true}) {
      AttemptRun run(two_nodes());
      run.report(swapped ? 1 : 0, swapped ? each.second : each.first);
      run.report(swapped ? 0 : 1, swapped ? each.first : each.second);
      ASSERT_TRUE(run.ended());
      const AttemptResult result = run.result();
      EXPECT_EQ(result.succeeded(), each.error == nullptr);
      EXPECT_EQ(result.error ? result.error->code : "", each.error == nullptr ? "" : each.error);
    }
  }
}

}  // namespace
}  // namespace gyre::jobs::hub
