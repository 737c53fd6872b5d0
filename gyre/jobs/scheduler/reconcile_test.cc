// After a crash at any moment the service has to find out what of its intents came true: nothing may run twice, nothing
// may be forgotten, and nothing may go on that nobody wants any more.
#include "gyre/jobs/scheduler/reconcile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "gyre/base/effort_test_support.h"
#include "gyre/base/random.h"

namespace gyre::jobs::scheduler {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

const ReportedAttempt kRuns{"a", true};
const ReportedAttempt kEnded{"a", false};

/// Attempt "a" on as many nodes as there are reports.
std::vector<Reconciliation> about(IntendedPhase phase, std::vector<ReportedNode> reports) {
  Intended intended{.attempts = {{.id = "a", .phase = phase}}};
  NodeId number = 0;
  for (ReportedNode& report : reports) {
    report.id = ++number;
    intended.attempts[0].nodes.push_back(number);
    intended.nodes.push_back({.id = number});
  }
  return reconcile(intended, {.nodes = std::move(reports)});
}

ReportedNode says(std::vector<ReportedAttempt> attempts) { return {.attempts = std::move(attempts)}; }
ReportedNode silent() { return {.program_answers = false}; }
ReportedNode expired() { return {.program_answers = false, .lease_is_over = true}; }

TEST(ReconcileTest, a_planned_attempt_is_started_until_it_runs_everywhere) {
  EXPECT_THAT(about(IntendedPhase::kPlanned, {says({}), says({})}), ElementsAre(StartAttempt{"a"}));
  EXPECT_THAT(about(IntendedPhase::kPlanned, {says({kRuns}), says({})}), ElementsAre(StartAttempt{"a"}));
  EXPECT_THAT(about(IntendedPhase::kPlanned, {says({kRuns}), says({kRuns})}), ElementsAre(ConfirmStart{"a"}));
  EXPECT_THAT(about(IntendedPhase::kPlanned, {says({kRuns}), says({kEnded})}), ElementsAre(ConfirmStart{"a"}));
}

TEST(ReconcileTest, a_started_attempt_that_runs_is_left_alone) {
  EXPECT_THAT(about(IntendedPhase::kStarted, {says({kRuns}), says({kRuns})}), IsEmpty());
  EXPECT_THAT(about(IntendedPhase::kStarted, {says({kRuns}), says({kEnded})}), IsEmpty());
}

TEST(ReconcileTest, an_end_while_nobody_listened_is_confirmed_from_its_record) {
  EXPECT_THAT(about(IntendedPhase::kStarted, {says({kEnded}), says({kEnded})}), ElementsAre(ConfirmEnd{"a", 1}));
  EXPECT_THAT(about(IntendedPhase::kPlanned, {says({kEnded})}), ElementsAre(ConfirmEnd{"a", 1}));
}

TEST(ReconcileTest, a_node_program_that_does_not_answer_is_waited_for_until_its_lease_is_over) {
  EXPECT_THAT(about(IntendedPhase::kPlanned, {says({kRuns}), silent()}), IsEmpty());
  EXPECT_THAT(about(IntendedPhase::kStarted, {says({kRuns}), silent()}), IsEmpty());
  EXPECT_THAT(about(IntendedPhase::kEnding, {says({}), silent()}), IsEmpty());
  EXPECT_THAT(about(IntendedPhase::kStarted, {expired()}), ElementsAre(MarkNodeLost{1}, ConfirmEnd{"a", std::nullopt}));
}

TEST(ReconcileTest, when_a_node_is_lost_the_others_are_ended_before_the_attempt_is) {
  EXPECT_THAT(about(IntendedPhase::kStarted, {expired(), says({kRuns})}),
              ElementsAre(MarkNodeLost{1}, EndAttemptOnNode{"a", 2}));
  EXPECT_THAT(about(IntendedPhase::kStarted, {expired(), says({kEnded})}),
              ElementsAre(MarkNodeLost{1}, ConfirmEnd{"a", 2}));
}

TEST(ReconcileTest, a_node_that_was_restarted_has_lost_its_ranks) {
  EXPECT_THAT(about(IntendedPhase::kStarted, {says({}), says({kRuns})}), ElementsAre(EndAttemptOnNode{"a", 2}));
  // It is not started a second time on one node, after its end on another one.
  EXPECT_THAT(about(IntendedPhase::kPlanned, {says({}), says({kEnded})}), ElementsAre(ConfirmEnd{"a", 2}));
}

TEST(ReconcileTest, an_attempt_that_is_to_be_ended_is_ended_wherever_it_runs) {
  EXPECT_THAT(about(IntendedPhase::kEnding, {says({kRuns}), says({kEnded})}), ElementsAre(EndAttemptOnNode{"a", 1}));
  EXPECT_THAT(about(IntendedPhase::kEnding, {says({}), says({})}), ElementsAre(ConfirmEnd{"a", std::nullopt}));
}

TEST(ReconcileTest, what_nobody_intends_is_ended_and_forgotten) {
  const Intended nothing{.nodes = {{.id = 1}}};
  const Reported reported{.nodes = {{.id = 1, .attempts = {{"old", true}, {"older", false}}}}};
  EXPECT_THAT(reconcile(nothing, reported), ElementsAre(EndAttemptOnNode{"old", 1}, ForgetRecord{"older", 1}));
}

TEST(ReconcileTest, nodes_become_what_was_intended) {
  const Intended intended{.nodes = {{1, IntendedNodePhase::kAllocating},
                                    {2, IntendedNodePhase::kAllocating},
                                    {3, IntendedNodePhase::kLeaving},
                                    {4, IntendedNodePhase::kLeaving},
                                    {5, IntendedNodePhase::kPresent},
                                    {6, IntendedNodePhase::kPresent}}};
  Reported reported{.nodes = {{.id = 1}, {.id = 3}, {.id = 5}, {.id = 7}}};
  EXPECT_THAT(reconcile(intended, reported),
              UnorderedElementsAre(ConfirmAllocation{1}, AllocateNode{2}, ReleaseNodeAgain{3}, ConfirmRelease{4},
                                   MarkNodeLost{6}, ReleaseNodeAgain{7}));
  // A driver that does not answer says nothing about nodes that are not listed.
  reported.complete = false;
  EXPECT_THAT(reconcile(intended, reported),
              UnorderedElementsAre(ConfirmAllocation{1}, ReleaseNodeAgain{3}, ReleaseNodeAgain{7}));
}

/// What really happens on nodes, and what the service knows of it.
struct World {
  Random random;
  Intended intended{};
  std::map<NodeId, std::map<std::string, bool>> truth{};  ///< Per node and attempt: whether it runs.
  std::set<NodeId> silent{};
  std::set<std::string> confirmed_ends{};

  explicit World(std::uint64_t seed) : random(seed) {
    for (NodeId node = 1; node <= 6; ++node) {
      truth[node] = {};
      intended.nodes.push_back({.id = node});
    }
    for (int i = 0; i < 3; ++i) {
      IntendedAttempt attempt{.id = std::string(1, static_cast<char>('a' + i)),
                              .phase = static_cast<IntendedPhase>(random.below(3))};
      attempt.nodes = {2 * i + 1, 2 * i + 2};
      for (const NodeId node : attempt.nodes) surprise(node, attempt.id);
      intended.attempts.push_back(attempt);
    }
    for (NodeId node = 1; node <= 6; ++node) {
      if (random.below(4) == 0) truth[node]["z"] = random.below(2) == 0;
      if (random.below(4) == 0) silent.insert(node);
    }
  }
  void surprise(NodeId node, const std::string& attempt) {
    if (const auto chance = random.below(3); chance < 2) truth[node][attempt] = chance == 0;
  }
  Reported report(bool leases_are_over) {
    Reported reported;
    for (const auto& [id, attempts] : truth) {
      ReportedNode node{.id = id, .program_answers = !silent.contains(id), .lease_is_over = leases_are_over};
      for (const auto& [attempt, runs] : attempts) {
        if (node.program_answers) node.attempts.push_back({attempt, runs});
        // A node program whose lease is over has ended its ranks.
        else if (leases_are_over)
          truth[id][attempt] = false;
      }
      reported.nodes.push_back(node);
    }
    return reported;
  }
  bool runs_anywhere(const std::string& id) const {
    return std::ranges::any_of(truth, [&](const auto& node) {
      const auto found = node.second.find(id);
      return found != node.second.end() && found->second;
    });
  }
  IntendedAttempt& attempt(const std::string& id) {
    return *std::ranges::find(intended.attempts, id, &IntendedAttempt::id);
  }
  void apply(const StartAttempt& start) {
    ASSERT_EQ(attempt(start.id).phase, IntendedPhase::kPlanned);
    for (const NodeId node : attempt(start.id).nodes) {
      if (random.below(4) > 0) truth[node].emplace(start.id, true);  // Some of the messages are lost.
    }
  }
  void apply(const ConfirmStart& start) { attempt(start.id).phase = IntendedPhase::kStarted; }
  void apply(const EndAttemptOnNode& end) {
    if (random.below(4) > 0) truth[end.node][end.id] = false;
  }
  void apply(const ConfirmEnd& end) {
    ASSERT_FALSE(runs_anywhere(end.id)) << end.id << " still runs";
    ASSERT_TRUE(confirmed_ends.insert(end.id).second);
    std::erase_if(intended.attempts, [&](const IntendedAttempt& other) { return other.id == end.id; });
  }
  void apply(const ForgetRecord& record) {
    ASSERT_FALSE(truth[record.node][record.id]);
    truth[record.node].erase(record.id);
  }
  void apply(const MarkNodeLost& lost) {
    std::erase_if(intended.nodes, [&](const IntendedNode& node) { return node.id == lost.node; });
  }
  void apply(const ReleaseNodeAgain& release) { truth.erase(release.node); }
  template <typename Other>
  void apply(const Other& /*never here*/) {
    FAIL();
  }
  /// Until there is nothing left to do, with crashes on the way.
  void settle(bool leases_are_over) {
    for (int round = 0; round < 200; ++round) {
      const auto actions = reconcile(intended, report(leases_are_over));
      if (actions.empty()) return;
      for (const Reconciliation& action : actions) {
        if (random.below(5) == 0) break;  // The service is killed.
        std::visit([this](const auto& one) { apply(one); }, action);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
    FAIL() << "no end";
  }
};

TEST(ReconcileTest, every_world_settles_and_nothing_is_confirmed_that_is_not_true) {
  const std::uint64_t count = is_long_test() ? 100'000 : 2'000;
  for (std::uint64_t seed = first_case_of_day(); seed < first_case_of_day() + count && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    World world(seed);
    world.settle(false);
    world.settle(true);
    for (const IntendedAttempt& attempt : world.intended.attempts) {
      EXPECT_EQ(attempt.phase, IntendedPhase::kStarted);
      EXPECT_TRUE(world.runs_anywhere(attempt.id));
    }
    for (const auto& [node, attempts] : world.truth) {
      if (world.silent.contains(node)) continue;
      for (const auto& [attempt, runs] : attempts) EXPECT_FALSE(world.confirmed_ends.contains(attempt)) << attempt;
    }
    EXPECT_FALSE(world.runs_anywhere("z"));
  }
}

}  // namespace
}  // namespace gyre::jobs::scheduler
