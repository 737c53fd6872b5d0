// Leases decide when a job may be given to others: too early and it runs twice, too late and nodes stand idle.
#include "gyre/jobs/hub/internal/hub_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace gyre::jobs::hub::internal {

using orders::NodeReport;
using orders::Phase;
using orders::WorkOrder;

namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class HubStateTest : public testing::Test {
 protected:
  HubStateTest() : state_(options(), now_) {
    order_.attempt = "a1";
    order_.nodes = {{"n0", "127.0.0.2", 1, 0}};
  }

  static HubOptions options() {
    HubOptions options;
    options.lease = std::chrono::seconds(10);
    options.margin = std::chrono::seconds(3);
    options.longest_start = std::chrono::seconds(30);
    return options;
  }

  void pass(int seconds) {
    now_ += std::chrono::seconds(seconds);
    state_.look_at_clock(now_);
  }
  std::vector<std::uint16_t> sent() {
    std::vector<std::uint16_t> types;
    for (const Outgoing& message : state_.take_outgoing()) types.push_back(message.type);
    return types;
  }
  std::vector<HubEvent::Kind> events() {
    std::vector<HubEvent::Kind> kinds;
    for (const HubEvent& event : state_.take_events()) kinds.push_back(event.kind);
    return kinds;
  }
  static NodeReport at(Phase phase) {
    NodeReport report;
    report.attempt = "a1";
    report.phase = phase;
    if (phase >= Phase::kPrepared) report.facts.emplace();
    if (phase == Phase::kEnded) report.record.emplace();
    return report;
  }

  HubState::Time now_{};
  HubState state_;
  WorkOrder order_;
};

TEST_F(HubStateTest, an_order_waits_for_its_node_program_and_is_told_once_per_connection) {
  state_.submit(order_, now_);
  EXPECT_THAT(sent(), IsEmpty());
  state_.node_came({"n0", 1, {}}, now_);
  EXPECT_THAT(sent(), ElementsAre(orders::message_type::kPrepare));
  state_.submit(order_, now_);
  EXPECT_THAT(sent(), IsEmpty());
  state_.node_gone("n0");
  state_.node_came({"n0", 2, {}}, now_);
  EXPECT_THAT(sent(), ElementsAre(orders::message_type::kPrepare));
}

// Engines choose nodes themselves: where they are is known when their node programs come.
TEST_F(HubStateTest, nobody_prepares_before_all_addresses_are_known) {
  order_.nodes = {{"n0", "", 1, 0, "a1-0"}, {"n1", "", 1, 0, "a1-1"}};
  state_.submit(order_, now_);
  state_.node_came({"a1-0", 1, {}, "10.0.0.4", 8, 1}, now_);
  EXPECT_THAT(sent(), IsEmpty());
  state_.node_came({"a1-1", 1, {}, "10.0.0.5", 8, 0}, now_);
  const std::vector<Outgoing> orders = state_.take_outgoing();
  ASSERT_EQ(orders.size(), 2U);
  EXPECT_EQ(orders[1].node, "a1-1");
  EXPECT_THAT(orders[1].payload, testing::HasSubstr(R"("address":"10.0.0.4","agent":"a1-0","cores":8,"gpus":1)"));
}

TEST_F(HubStateTest, without_a_longest_start_only_node_programs_that_had_come_are_missed) {
  HubOptions patient = options();
  patient.longest_start = std::chrono::seconds(0);
  HubState state(patient, now_);
  state.submit(order_, now_);
  state.look_at_clock(now_ + std::chrono::hours(48));
  EXPECT_FALSE(state.has_events());
  state.node_came({"n0", 1, {}}, now_);
  state.node_gone("n0");
  static_cast<void>(state.take_events());
  state.look_at_clock(now_ + std::chrono::seconds(30));
  EXPECT_TRUE(state.has_events());
}

TEST_F(HubStateTest, a_node_is_lost_when_lease_and_margin_have_passed_and_not_before) {
  state_.submit(order_, now_);
  state_.node_came({"n0", 1, {}}, now_);
  pass(9);
  state_.renewed("n0", now_);
  static_cast<void>(events());
  pass(12);
  EXPECT_THAT(events(), IsEmpty());
  pass(1);
  EXPECT_THAT(events(), ElementsAre(HubEvent::Kind::kNodeLost, HubEvent::Kind::kEnded));
}

// A connection that ends says nothing about the lease: the node program may be about to come back.
TEST_F(HubStateTest, a_broken_connection_alone_loses_no_node) {
  state_.submit(order_, now_);
  state_.node_came({"n0", 1, {}}, now_);
  state_.node_gone("n0");
  static_cast<void>(events());
  pass(12);
  EXPECT_THAT(events(), IsEmpty());
}

TEST_F(HubStateTest, a_node_program_that_never_comes_loses_its_node_after_the_longest_start) {
  state_.submit(order_, now_);
  pass(29);
  EXPECT_THAT(events(), IsEmpty());
  pass(1);
  EXPECT_THAT(events(), ElementsAre(HubEvent::Kind::kNodeLost, HubEvent::Kind::kEnded));
}

// A service that restarts is given what it had written down; node programs may still hold what it has settled long ago.
TEST_F(HubStateTest, attempts_that_nobody_knows_are_ended_and_forgotten) {
  pass(2);
  state_.node_came({"n0", 1, {at(Phase::kRunning)}}, now_);
  EXPECT_THAT(sent(), ElementsAre(orders::message_type::kStop));
  state_.report("n0", at(Phase::kEnded));
  EXPECT_THAT(sent(), ElementsAre(orders::message_type::kForget));
}

// A node program may be faster than the service that has just started, and must not lose its job by that.
TEST_F(HubStateTest, an_attempt_that_is_handed_over_late_goes_on) {
  state_.node_came({"n0", 1, {at(Phase::kRunning)}}, now_);
  EXPECT_THAT(sent(), IsEmpty());
  pass(1);
  state_.submit(order_, now_);
  state_.report("n0", at(Phase::kRunning));
  static_cast<void>(sent());
  pass(1);
  EXPECT_THAT(sent(), IsEmpty());
}

TEST_F(HubStateTest, an_attempt_that_is_never_handed_over_is_ended) {
  state_.node_came({"n0", 1, {at(Phase::kRunning)}}, now_);
  EXPECT_THAT(sent(), IsEmpty());
  pass(2);
  EXPECT_THAT(sent(), ElementsAre(orders::message_type::kStop));
}

// It was refused there, with "the node is busy", and the job failed through no fault of its own.
TEST_F(HubStateTest, an_order_waits_until_its_node_has_ended_what_nobody_knows_any_more) {
  pass(2);
  NodeReport other = at(Phase::kRunning);
  other.attempt = "unknown";
  state_.node_came({"n0", 1, {other}}, now_);
  state_.submit(order_, now_);
  EXPECT_THAT(sent(), ElementsAre(orders::message_type::kStop));
  other.phase = Phase::kEnded;
  other.record.emplace();
  state_.report("n0", other);
  EXPECT_THAT(sent(), testing::UnorderedElementsAre(orders::message_type::kForget, orders::message_type::kPrepare));
}

TEST_F(HubStateTest, an_end_is_told_once_and_forgotten_when_it_is_acknowledged) {
  state_.submit(order_, now_);
  state_.node_came({"n0", 1, {}}, now_);
  for (const Phase phase : {Phase::kPrepared, Phase::kRunning, Phase::kDone, Phase::kEnded, Phase::kEnded}) {
    state_.report("n0", at(phase));
  }
  const auto told = events();
  EXPECT_EQ(std::ranges::count(told, HubEvent::Kind::kEnded), 1);
  EXPECT_EQ(std::ranges::count(told, HubEvent::Kind::kRunning), 1);
  EXPECT_THAT(sent(),
              ElementsAre(orders::message_type::kPrepare, orders::message_type::kRun, orders::message_type::kFinish));
  state_.acknowledge("a1");
  EXPECT_THAT(sent(), ElementsAre(orders::message_type::kForget));
}

TEST_F(HubStateTest, an_end_is_told_when_the_logs_have_come_or_their_node_is_lost) {
  state_.submit(order_, now_);
  state_.node_came({"n0", 1, {}}, now_);
  NodeReport report = at(Phase::kEnded);
  report.sends_logs = true;
  static_cast<void>(events());
  state_.report("n0", report);
  EXPECT_THAT(events(), ElementsAre(HubEvent::Kind::kRunning));
  state_.acknowledge("a1");
  pass(13);
  EXPECT_THAT(events(), ElementsAre(HubEvent::Kind::kNodeLost, HubEvent::Kind::kNote, HubEvent::Kind::kEnded));
}

}  // namespace
}  // namespace gyre::jobs::hub::internal
