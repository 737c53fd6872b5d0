// When a job breaks, many ranks fail within milliseconds; people must be shown the one that was the cause.
#include "gyre/launch/internal/first_failure.h"

#include <gtest/gtest.h>

#include <csignal>

namespace gyre::launch {
namespace {

using std::chrono::milliseconds;

const SteadyClock::time_point kStart{};

RankFailure exits(int rank, int code, int at_ms) { return {rank, {.code = code}, kStart + milliseconds(at_ms)}; }
RankFailure dies(int rank, int signal, int at_ms) { return {rank, {.signal = signal}, kStart + milliseconds(at_ms)}; }

using Word = RankReport::Word;

int rank_after(std::initializer_list<RankFailure> failures) {
  FirstFailure first;
  for (const RankFailure& failure : failures) first.add(failure);
  return first.best()->rank;
}

TEST(first_failure, reports_are_read_from_their_lines_and_nothing_else_is) {
  const auto report = parse_report("failed 12", 13);
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->word, Word::kFailed);
  EXPECT_EQ(report->rank, 12);
  EXPECT_EQ(parse_report("ends 0", 1)->word, Word::kEnds);
  EXPECT_EQ(parse_report("left 0", 1)->word, Word::kLeft);
  for (const char* line : {"", "ends", "ends ", "ends x", "ends -1", "ends 13", "ends 1x", "12", "begins 1",
                           "ends 99999999999999999999"}) {
    EXPECT_FALSE(parse_report(line, 13).has_value()) << line;
  }
}

TEST(first_failure, a_rank_that_said_goodbye_before_the_first_failure_had_left_however_long_its_process_took) {
  FirstFailure first;
  first.hear({Word::kEnds, 1});
  first.hear({Word::kLeft, 2});
  first.hear({Word::kFailed, 3});
  first.hear({Word::kEnds, 4});
  first.add(exits(0, 1, 10));
  first.hear({Word::kEnds, 5});
  EXPECT_EQ(first.left_before(0), (std::vector<int>{1, 2, 4})) << "rank 3 did not say so, and rank 5 only afterwards";
  EXPECT_EQ(first.left_before(4), (std::vector<int>{1, 2}));
}

TEST(first_failure, there_is_none_before_a_rank_has_failed) {
  const FirstFailure first;
  EXPECT_FALSE(first.final_at(kStart + milliseconds(1000)).has_value());
  EXPECT_FALSE(first.settles_at().has_value());
  EXPECT_FALSE(first.best().has_value());
}

TEST(first_failure, a_kill_is_final_at_once) {
  FirstFailure first;
  first.add(dies(2, SIGKILL, 10));
  ASSERT_TRUE(first.final_at(kStart + milliseconds(10)).has_value());
  EXPECT_EQ(first.final_at(kStart + milliseconds(10))->rank, 2);
  first.add(dies(1, SIGSEGV, 11));
  EXPECT_EQ(first.best()->rank, 2);
}

TEST(first_failure, an_exit_code_waits_for_stronger_evidence_and_then_is_final) {
  FirstFailure first;
  first.add(exits(1, 3, 10));
  EXPECT_FALSE(first.final_at(kStart + milliseconds(159)).has_value());
  EXPECT_EQ(first.settles_at(), kStart + milliseconds(160));
  ASSERT_TRUE(first.final_at(kStart + milliseconds(160)).has_value());
  EXPECT_EQ(first.final_at(kStart + milliseconds(160))->rank, 1);
}

TEST(first_failure, a_kill_seen_shortly_after_exits_is_their_cause) {
  EXPECT_EQ(rank_after({exits(0, 1, 0), exits(1, 1, 1), dies(3, SIGKILL, 100)}), 3);
  EXPECT_EQ(rank_after({exits(0, 1, 0), dies(3, SIGSEGV, 149)}), 3);
}

TEST(first_failure, a_kill_that_a_busy_launcher_sees_late_but_before_it_acts_is_still_the_cause) {
  EXPECT_EQ(rank_after({exits(0, 1, 0), dies(3, SIGKILL, 1'500)}), 3);
}

TEST(first_failure, what_other_ranks_may_still_write_is_waited_for_a_while) {
  FirstFailure first;
  first.add(dies(0, SIGABRT, 0));
  first.words_are_awaited(true);
  EXPECT_FALSE(first.final_at(kStart + milliseconds(2'999)).has_value());
  EXPECT_TRUE(first.final_at(kStart + milliseconds(3'000)).has_value());
  first.words_are_awaited(false);
  EXPECT_TRUE(first.final_at(kStart + milliseconds(200)).has_value());
}

TEST(first_failure, a_rank_that_is_dying_is_waited_for) {
  FirstFailure first;
  first.add(exits(0, 1, 0));
  first.somebody_is_dying(true);
  EXPECT_FALSE(first.final_at(kStart + milliseconds(7'999)).has_value());
  EXPECT_TRUE(first.final_at(kStart + milliseconds(8'000)).has_value());
  first.add(dies(3, SIGKILL, 3'000));
  first.somebody_is_dying(false);
  ASSERT_TRUE(first.final_at(kStart + milliseconds(3'000)).has_value());
  EXPECT_EQ(first.best()->rank, 3);
}

TEST(first_failure, among_equals_the_earliest_counts) {
  EXPECT_EQ(rank_after({exits(2, 3, 0), exits(0, 1, 0), exits(1, 1, 5)}), 2);
  EXPECT_EQ(rank_after({dies(1, SIGSEGV, 0), dies(0, SIGKILL, 0)}), 1);
  EXPECT_EQ(rank_after({dies(2, SIGABRT, 0), dies(0, SIGABRT, 1)}), 2);
}

TEST(first_failure, an_abort_is_stronger_than_an_exit_and_weaker_than_a_kill) {
  // A C++ rank that loses a peer ends in std::terminate.
  EXPECT_EQ(rank_after({dies(0, SIGABRT, 0), dies(1, SIGKILL, 20)}), 1);
  EXPECT_EQ(rank_after({exits(0, 1, 0), dies(1, SIGABRT, 20), exits(2, 1, 30)}), 1);
  EXPECT_EQ(rank_after({dies(0, SIGPIPE, 0), dies(1, SIGBUS, 20)}), 1);
}

TEST(first_failure, whose_failure_became_the_groups_counts_more_than_who_ended_first) {
  FirstFailure first;
  first.hear({Word::kFailed, 2});
  first.add(exits(0, 1, 0));
  EXPECT_FALSE(first.final_at(kStart + milliseconds(7'999)).has_value());
  first.add(dies(1, SIGABRT, 10));
  first.add(exits(2, 7, 7'500));
  ASSERT_TRUE(first.final_at(kStart + milliseconds(7'500)).has_value());
  EXPECT_EQ(first.best()->rank, 2);
}

TEST(first_failure, a_kill_counts_more_than_the_ranks_reports) {
  FirstFailure first;
  first.hear({Word::kEnds, 0});
  first.hear({Word::kFailed, 0});
  first.add(exits(0, 1, 0));
  first.add(dies(1, SIGKILL, 100));
  EXPECT_EQ(first.best()->rank, 1);
}

TEST(first_failure, a_suspect_that_does_not_end_is_waited_for_a_while_only) {
  FirstFailure first;
  first.hear({Word::kLeft, 1});
  first.add(exits(0, 1, 0));
  ASSERT_TRUE(first.final_at(kStart + milliseconds(8'000)).has_value());
  EXPECT_EQ(first.best()->rank, 0);
}

TEST(first_failure, a_rank_that_has_ended_well_is_no_suspect) {
  FirstFailure first;
  first.ended_well(1);
  first.hear({Word::kLeft, 1});
  first.add(exits(0, 1, 0));
  EXPECT_TRUE(first.final_at(kStart + milliseconds(150)).has_value());
}

TEST(first_failure, of_several_groups_the_latest_report_counts) {
  FirstFailure first;
  first.hear({Word::kLeft, 1});
  first.hear({Word::kLeft, 0});
  first.hear({Word::kLeft, 2});
  first.hear({Word::kLeft, 0});
  first.add(exits(1, 1, 0));
  first.add(exits(0, 1, 5));
  EXPECT_EQ(first.best()->rank, 0);
}

TEST(first_failure, who_announces_its_end_first_is_the_cause_whatever_its_groups_say_meanwhile) {
  // Rank 2 leaves one group, rank 0 fails because of it and leaves the other group before rank 2 has.
  FirstFailure first;
  first.hear({Word::kEnds, 2});
  first.hear({Word::kLeft, 2});
  first.hear({Word::kEnds, 0});
  first.hear({Word::kLeft, 0});
  first.hear({Word::kFailed, 0});
  first.hear({Word::kEnds, 1});
  first.add(exits(1, 1, 0));
  first.add(exits(0, 1, 5));
  EXPECT_FALSE(first.final_at(kStart + milliseconds(7'999)).has_value());
  first.add(exits(2, 3, 6'000));
  ASSERT_TRUE(first.final_at(kStart + milliseconds(6'000)).has_value());
  EXPECT_EQ(first.best()->rank, 2);
}

TEST(first_failure, a_crash_before_the_first_announcement_is_what_that_follows_from) {
  FirstFailure first;
  first.hear({Word::kFailed, 1});  // Called _exit(1).
  first.hear({Word::kEnds, 0});
  first.add(exits(0, 1, 0));
  first.add(exits(1, 1, 5));
  EXPECT_EQ(first.best()->rank, 1);
}

TEST(first_failure, a_rank_that_leaves_and_lives_is_not_blamed_for_the_first_end) {
  FirstFailure first;
  first.hear({Word::kLeft, 2});
  first.hear({Word::kEnds, 1});
  first.add(exits(1, 1, 0));
  ASSERT_TRUE(first.final_at(kStart + milliseconds(150)).has_value());
  EXPECT_EQ(first.best()->rank, 1);
}

TEST(first_failure, an_announced_end_that_went_well_makes_the_next_one_the_suspect) {
  FirstFailure first;
  first.hear({Word::kEnds, 0});
  first.hear({Word::kEnds, 2});
  first.hear({Word::kEnds, 1});
  first.add(exits(1, 1, 0));
  first.add(exits(2, 5, 5));
  EXPECT_FALSE(first.final_at(kStart + milliseconds(1'000)).has_value());
  first.ended_well(0);
  ASSERT_TRUE(first.final_at(kStart + milliseconds(1'000)).has_value());
  EXPECT_EQ(first.best()->rank, 2);
}

TEST(first_failure, the_time_to_settle_counts_from_the_first_failure_seen) {
  FirstFailure first;
  first.add(exits(0, 1, 0));
  first.add(dies(1, SIGABRT, 100));
  EXPECT_EQ(first.settles_at(), kStart + milliseconds(150));
}

TEST(first_failure, a_shell_that_reports_a_signal_counts_as_that_signal) {
  EXPECT_EQ(rank_after({exits(0, 1, 0), exits(1, 128 + SIGKILL, 50)}), 1);
  EXPECT_EQ(rank_after({exits(0, 1, 0), exits(1, 255, 50)}), 0);
}

}  // namespace
}  // namespace gyre::launch
