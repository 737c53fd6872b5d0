// A deadlock that is reported ends the job, so the report must be a proof: every case that looks like a deadlock and is
// none is a row here.
#include "gyre/engine/internal/stall/deadlock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gyre::engine::internal {
namespace {

using testing::ElementsAre;

constexpr std::uint64_t kOwn = 7;
constexpr std::uint64_t kOther = 8;

Awaited operation(const std::string& name, std::uint64_t engine = kOwn) {
  return {.engine = engine, .operation = name, .serial = 1};
}
Awaited end_of_step(PlanStep step) { return {.engine = kOwn, .operation = {}, .step = step}; }

ThreadState waits_for(const Awaited& awaited) { return {{awaited}}; }
const ThreadState kRuns{};

RankState rank_in(const Awaited& awaited) { return {{waits_for(awaited)}, {}, {}}; }

std::optional<CycleOfWaits> find_deadlock(const std::vector<std::optional<RankState>>& states, std::uint64_t engine,
                                          const std::vector<IncompleteOperation>& incomplete) {
  return internal::find_deadlock(states, engine, incomplete, Assumption::kNothing);
}

std::optional<CycleOfWaits> find_likely(const std::vector<std::optional<RankState>>& states,
                                        const std::vector<IncompleteOperation>& incomplete) {
  return internal::find_deadlock(states, kOwn, incomplete, Assumption::kUsualProgram);
}

using States = std::vector<std::optional<RankState>>;

TEST(DeadlockTest, two_ranks_that_wait_for_operations_which_the_other_has_not_called_are_in_one) {
  const States states = {rank_in(operation("evaluate")), rank_in(operation("train"))};
  const auto cycle = find_deadlock(states, kOwn, {{"evaluate", 1, {1}}, {"train", 1, {0}}});
  ASSERT_TRUE(cycle.has_value());
  EXPECT_FALSE(cycle->needs_confirmation);
  ASSERT_EQ(cycle->waits.size(), 2U);
  EXPECT_EQ(cycle->waits[0].awaited.operation, "evaluate");
  EXPECT_THAT(cycle->waits[0].ranks, ElementsAre(0));
  EXPECT_THAT(cycle->waits[0].needed_ranks, ElementsAre(1));
  EXPECT_EQ(cycle->waits[1].awaited.operation, "train");
  EXPECT_THAT(cycle->waits[1].needed_ranks, ElementsAre(0));
}

TEST(DeadlockTest, all_ranks_that_wait_are_named_and_a_rank_that_computes_does_not_hide_it) {
  const States states = {rank_in(operation("train")), rank_in(operation("evaluate")), rank_in(operation("train")),
                         RankState{{kRuns}, {}, {}}};
  const auto cycle = find_deadlock(states, kOwn, {{"evaluate", 1, {0, 2, 3}}, {"train", 1, {1, 3}}});
  ASSERT_TRUE(cycle.has_value());
  EXPECT_THAT(cycle->waits[0].ranks, ElementsAre(0, 2));
  EXPECT_THAT(cycle->waits[0].needed_ranks, ElementsAre(1));
  EXPECT_THAT(cycle->waits[1].needed_ranks, ElementsAre(0, 2));
}

TEST(DeadlockTest, a_rank_that_still_computes_may_release_the_others) {
  // Rank 0 waits for rank 1, which waits for rank 2, which computes.
  const States states = {rank_in(operation("a")), rank_in(operation("b")), RankState{{kRuns}, {}, {}}};
  EXPECT_FALSE(find_deadlock(states, kOwn, {{"a", 1, {1}}, {"b", 1, {2}}}).has_value());
}

TEST(DeadlockTest, a_rank_that_has_not_answered_may_do_anything) {
  const States states = {rank_in(operation("a")), std::nullopt};
  EXPECT_FALSE(find_deadlock(states, kOwn, {{"a", 1, {1}}}).has_value());
}

TEST(DeadlockTest, another_thread_of_the_rank_may_still_call_what_is_missing) {
  States states = {rank_in(operation("a")), RankState{{waits_for(operation("b")), kRuns}, {}, {}}};
  const std::vector<IncompleteOperation> incomplete = {{"a", 1, {1}}, {"b", 1, {0}}};
  EXPECT_FALSE(find_deadlock(states, kOwn, incomplete).has_value());
  states[1]->threads[1] = waits_for(operation("c"));
  EXPECT_FALSE(find_deadlock(states, kOwn, incomplete).has_value()) << "c runs, and then that thread is free";
  states[1]->threads[1] = waits_for(operation("b"));
  EXPECT_TRUE(find_deadlock(states, kOwn, incomplete).has_value());
}

TEST(DeadlockTest, an_operation_that_all_have_called_is_under_way) {
  const States states = {rank_in(operation("a")), rank_in(operation("b"))};
  EXPECT_FALSE(find_deadlock(states, kOwn, {{"a", 1, {1}}}).has_value());
}

TEST(DeadlockTest, an_answer_about_an_earlier_use_of_a_name_says_nothing_about_this_one) {
  // Rank 0 waited for an earlier "loss" when it answered; the next one, which rank 1 has begun, still needs rank 0.
  const States states = {rank_in(operation("loss")), rank_in(operation("loss"))};
  EXPECT_FALSE(find_deadlock(states, kOwn, {{"loss", 2, {0}}}).has_value());
  EXPECT_FALSE(find_deadlock(states, kOwn, {{"loss", 2, {0}}, {"other", 3, {1}}}).has_value());
}

TEST(DeadlockTest, a_thread_that_waits_for_several_things_is_stuck_only_if_none_of_them_can_come) {
  // After Ctrl-C has ended a wait, its operation is still in flight.
  const States states = {RankState{{{{operation("a"), operation("done")}}}, {}, {}}, rank_in(operation("b"))};
  EXPECT_FALSE(find_deadlock(states, kOwn, {{"a", 1, {1}}, {"b", 1, {0}}}).has_value());
}

TEST(DeadlockTest, a_step_waits_for_the_thread_that_owes_it_gradients) {
  constexpr PlanStep kStep{16, 4};
  States states = {rank_in(end_of_step(kStep)),
                   RankState{{waits_for(operation("metric")), kRuns}, {{kOwn, kStep, 0}}, {}}};
  const std::vector<IncompleteOperation> incomplete = {{"metric", 1, {0}}};
  EXPECT_FALSE(find_deadlock(states, kOwn, incomplete).has_value()) << "the other thread may compute this step";
  const auto likely = find_likely(states, incomplete);
  ASSERT_TRUE(likely.has_value()) << "in most programs it does not";
  EXPECT_EQ(likely->waits[0].awaited.step, kStep);
  states[1]->owed[0].thread = 1;
  EXPECT_FALSE(find_likely(states, incomplete).has_value()) << "the one that does is not stuck";
  states[1]->owed[0] = {kOwn, {16, 5}, 0};
  EXPECT_FALSE(find_likely(states, incomplete).has_value()) << "it owes another step";
  states[1] = RankState{{waits_for(operation("metric"))}, {{kOwn, kStep, 0}}, {}};
  EXPECT_TRUE(find_deadlock(states, kOwn, incomplete).has_value()) << "there is no other thread";
}

// The table of ADR 72: what a rank's threads do × what another rank waits for.
TEST(DeadlockTest, only_threads_that_are_all_known_and_wait_are_a_proof) {
  constexpr PlanStep kStep{16, 4};
  struct Others {
    const char* what;
    std::vector<ThreadState> threads;  // Besides the one that waits for "b".
    std::vector<std::string> strangers;
    bool proven;            // When an operation or a step is awaited.
    bool operation_likely;  // In a usual program.
    bool step_likely;
  };
  const ThreadState waits = waits_for(operation("b"));
  const std::vector<Others> table = {
      {"none", {}, {}, true, true, true},
      {"one that waits, too", {waits}, {}, true, true, true},
      {"one that has used Gyre and runs", {kRuns}, {}, false, false, true},
      {"one that is not known", {}, {"'saver'"}, false, true, true},
      {"one that waits and one that is not known", {waits}, {"'saver'"}, false, true, true},
      {"one that runs and one that is not known", {kRuns}, {"'saver'"}, false, false, true},
  };
  for (const Others& others : table) {
    RankState rank_1{{waits}, {{kOwn, kStep, 0}}, {}, others.strangers};
    for (const ThreadState& thread : others.threads) rank_1.threads.push_back(thread);
    const std::vector<IncompleteOperation> incomplete = {{"a", 1, {1}}, {"b", 1, {0}}};
    const States for_operation = {rank_in(operation("a")), rank_1};
    EXPECT_EQ(find_deadlock(for_operation, kOwn, incomplete).has_value(), others.proven) << others.what;
    EXPECT_EQ(find_likely(for_operation, incomplete).has_value(), others.operation_likely) << others.what;
    const States for_step = {rank_in(end_of_step(kStep)), rank_1};
    EXPECT_EQ(find_deadlock(for_step, kOwn, incomplete).has_value(), others.proven) << others.what;
    EXPECT_EQ(find_likely(for_step, incomplete).has_value(), others.step_likely) << others.what;
    // Nor does it help that the rank which waits has one.
    const States both = {RankState{{waits_for(operation("a"))}, {}, {}, others.strangers}, rank_1};
    EXPECT_EQ(find_deadlock(both, kOwn, incomplete).has_value(), others.proven) << others.what;
  }
}

TEST(DeadlockTest, a_stranger_on_a_rank_outside_of_the_cycle_hides_nothing) {
  const RankState elsewhere{{waits_for(operation("a"))}, {}, {}, {"'saver'"}};
  const States states = {rank_in(operation("a")), rank_in(operation("b")), elsewhere};
  EXPECT_TRUE(find_deadlock(states, kOwn, {{"a", 1, {1}}, {"b", 1, {0, 2}}}).has_value());
}

TEST(DeadlockTest, a_cycle_through_another_engine_is_found_and_needs_confirmation) {
  // Rank 0 waits in a process group of both, which rank 1 would come to after an operation of the whole job.
  RankState in_group = rank_in(operation("g", kOther));
  in_group.engines = {{kOther, false, true, {"g"}}};
  RankState in_job = rank_in(operation("w"));
  in_job.engines = {{kOther, false, true, {}}};
  const std::vector<IncompleteOperation> incomplete = {{"w", 1, {0}}};
  const auto cycle = find_deadlock({in_group, in_job}, kOwn, incomplete);
  ASSERT_TRUE(cycle.has_value());
  EXPECT_TRUE(cycle->needs_confirmation);
  in_job.engines[0].operations = {"g"};
  EXPECT_FALSE(find_deadlock({in_group, in_job}, kOwn, incomplete).has_value()) << "it has called it already";
  in_job.engines[0] = {kOther, false, false, {}};
  EXPECT_FALSE(find_deadlock({in_group, in_job}, kOwn, incomplete).has_value()) << "perhaps it has";
  in_job.engines[0] = {kOther, true, true, {}};
  EXPECT_FALSE(find_deadlock({in_group, in_job}, kOwn, incomplete).has_value()) << "it has joined there";
  in_job.engines.clear();
  EXPECT_FALSE(find_deadlock({in_group, in_job}, kOwn, incomplete).has_value()) << "it is no member";
}

TEST(DeadlockTest, what_ranks_say_of_themselves_is_not_trusted_with_memory) {
  const RankState damaged{{waits_for(end_of_step({1, 1}))}, {{kOwn, {1, 1}, 99}}, {}};
  EXPECT_FALSE(find_deadlock({damaged, damaged}, kOwn, {}).has_value());
  const RankState negative{{waits_for(end_of_step({1, 1}))}, {{kOwn, {1, 1}, -7}}, {}};
  EXPECT_FALSE(find_deadlock({negative, negative}, kOwn, {}).has_value());
}

}  // namespace
}  // namespace gyre::engine::internal
