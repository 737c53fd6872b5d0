// A watchdog that ends all ranks alike at its limit hides who was the cause: what it writes must be enough to name it.
#include "gyre/launch/internal/watchdog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace gyre::launch {
namespace {

using testing::HasSubstr;

std::string prefix(int rank, const std::string& group) {
  return "[rank" + std::to_string(rank) + "]:[E626 06:24:44.903881913 ProcessGroupNCCL.cpp:1785] [PG ID 0 PG GUID " +
         group + " Rank " + std::to_string(rank) + "] ";
}

/// As torch 2.4 and later write it, in two lines of which the first does not name the group.
WatchdogWords acts(int rank, const std::string& operation, int call = 2, int elements = 4,
                   const std::string& group = "0(default_pg)") {
  WatchdogReader reader(rank);
  reader.add("step 1");
  const std::string count = std::to_string(elements);
  reader.add(
      "[rank0]:[E626 06:24:44.903881913 ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught collective operation "
      "timeout: WorkNCCL(SeqNum=" +
      std::to_string(call) + ", OpType=" + operation + ", NumelIn=" + count + ", NumelOut=" + count +
      ", Timeout(ms)=600000) ran for 600020 milliseconds before timing out.");
  reader.add(prefix(rank, group) + " failure detected by watchdog at work sequence id: " + std::to_string(call) +
             " PG status: last enqueued work: " + std::to_string(call) + ", last completed work: 1");
  return *reader.words();
}

WatchdogWords hears(int rank, int last_called) {
  WatchdogReader reader(rank);
  reader.add(
      prefix(rank, "0(default_pg)") +
      "Received a dump signal due to a collective timeout from  rank 0 and we will try our best to dump the debug "
      "info. Last enqueued NCCL work: " +
      std::to_string(last_called) + ", last completed NCCL work: 1.This is most likely caused by …");
  EXPECT_FALSE(reader.has_acted());
  return *reader.words();
}

TEST(watchdog, other_lines_are_no_words_of_a_watchdog) {
  WatchdogReader reader(0);
  for (const char* line : {"", "loss 1.5", "a watchdog barked", "Traceback (most recent call last):"}) reader.add(line);
  EXPECT_FALSE(reader.words().has_value());
  EXPECT_EQ(judge_watchdogs({}, 4), std::nullopt);
  EXPECT_EQ(judge_watchdogs({hears(0, 3)}, 4), std::nullopt);
}

TEST(watchdog, its_lines_are_read) {
  const WatchdogWords words = acts(3, "ALLREDUCE", 1580, 466119168);
  EXPECT_EQ(words.rank, 3);
  EXPECT_EQ(words.group, "0(default_pg)");
  EXPECT_EQ(words.call, 1580);
  EXPECT_EQ(words.operation, "ALLREDUCE");
  EXPECT_EQ(words.elements, "NumelIn=466119168, NumelOut=466119168");
  EXPECT_EQ(words.last_called, "1580");
}

TEST(watchdog, a_damaged_line_is_no_call) {
  WatchdogReader reader(0);
  reader.add("Watchdog caught collective operation timeout: WorkNCCL(SeqNum=");
  EXPECT_FALSE(reader.has_acted());
  reader.add("Watchdog caught collective operation timeout: WorkNCCL(SeqNum=99999999999999999999, OpType=");
  EXPECT_FALSE(reader.has_acted());
}

TEST(watchdog, a_rank_that_had_not_called_is_the_cause_whether_it_says_so_or_nothing) {
  for (const auto& words : {std::vector{acts(0, "ALLREDUCE"), hears(1, 1), acts(2, "ALLREDUCE")},
                            std::vector{acts(0, "ALLREDUCE"), acts(2, "ALLREDUCE")}}) {
    const auto verdict = judge_watchdogs(words, 3);
    ASSERT_TRUE(verdict.has_value());
    EXPECT_EQ(verdict->rank, 1);
    EXPECT_EQ(verdict->cause, "rank 1 of 3 did not make a call that ranks 0, 2 waited for");
    EXPECT_EQ(verdict->call, "number 2 of its group, ALLREDUCE (NumelIn=4, NumelOut=4)");
  }
}

TEST(watchdog, a_rank_that_was_ended_before_its_own_limit_has_called_if_it_says_so) {
  const auto verdict = judge_watchdogs({acts(0, "ALLREDUCE"), hears(2, 2)}, 3);
  ASSERT_TRUE(verdict.has_value());
  EXPECT_EQ(verdict->rank, 1);
  EXPECT_EQ(verdict->cause, "rank 1 of 3 did not make a call that ranks 0, 2 waited for");
}

TEST(watchdog, ranks_that_called_different_operations_are_shown_side_by_side) {
  const auto verdict = judge_watchdogs({acts(0, "ALLREDUCE"), acts(1, "BROADCAST"), acts(2, "ALLREDUCE")}, 3);
  ASSERT_TRUE(verdict.has_value());
  EXPECT_EQ(verdict->rank, 1);
  EXPECT_EQ(verdict->cause, "the ranks called different operations");
  EXPECT_EQ(verdict->call,
            "number 2 of its group is ALLREDUCE (NumelIn=4, NumelOut=4) on ranks 0, 2, BROADCAST (NumelIn=4, "
            "NumelOut=4) on rank 1");
}

TEST(watchdog, different_sizes_count_where_they_must_be_equal) {
  const auto differs = [](const char* operation) {
    return judge_watchdogs({acts(0, operation, 7, 4), acts(1, operation, 7, 5)}, 2)->cause;
  };
  EXPECT_EQ(differs("ALLREDUCE"), "the ranks called different operations");
  EXPECT_THAT(differs("ALLTOALL"), HasSubstr("a device did not finish"));
}

TEST(watchdog, of_two_ranks_neither_is_blamed_for_a_disagreement) {
  EXPECT_EQ(judge_watchdogs({acts(0, "ALLREDUCE"), acts(1, "BROADCAST")}, 2)->rank, std::nullopt);
}

TEST(watchdog, where_all_have_called_the_device_hangs) {
  const auto verdict = judge_watchdogs({acts(0, "ALLREDUCE"), acts(1, "ALLREDUCE")}, 2);
  ASSERT_TRUE(verdict.has_value());
  EXPECT_EQ(verdict->rank, std::nullopt);
  EXPECT_THAT(verdict->advice, HasSubstr("hangs, not the program"));
}

TEST(watchdog, nobody_is_missing_in_a_group_of_some_ranks_only_because_it_says_nothing) {
  const auto verdict =
      judge_watchdogs({acts(0, "ALLREDUCE", 2, 4, "3(mesh_tp)"), acts(1, "ALLREDUCE", 2, 4, "3(mesh_tp)")}, 8);
  ASSERT_TRUE(verdict.has_value());
  EXPECT_EQ(verdict->cause, "a device did not finish what ranks 0, 1 had called");
  EXPECT_THAT(verdict->advice, HasSubstr("another rank of the group"));
}

TEST(watchdog, the_two_sides_of_a_message_do_not_disagree) {
  const auto verdict = judge_watchdogs({acts(0, "SEND", 1), acts(1, "RECV", 1)}, 3);
  ASSERT_TRUE(verdict.has_value());
  EXPECT_EQ(verdict->cause, "a device did not finish what ranks 0, 1 had called");
}

TEST(watchdog, a_report_of_gyres_own_about_missing_ranks_is_kept) {
  WatchdogReader reader(0);
  reader.add("[gyre] [warning] rank 0: stall: 'x' is ready on ranks 0, 2; missing: rank 1 (host a): train.py:7");
  EXPECT_EQ(reader.stall(), "stall: 'x' is ready on ranks 0, 2; missing: rank 1 (host a): train.py:7");
  EXPECT_FALSE(reader.words().has_value());
}

}  // namespace
}  // namespace gyre::launch
