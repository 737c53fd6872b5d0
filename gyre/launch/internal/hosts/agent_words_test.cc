// Who failed first in a job over several hosts is decided from these lines; what is none of them must do no harm.
#include "gyre/launch/internal/hosts/agent_words.h"

#include <gtest/gtest.h>

#include <csignal>

namespace gyre::launch {
namespace {

constexpr int kRanks = 4;

FromAgent sent(const FromAgent& words) {
  const auto back = parse_from_agent(to_line(words), kRanks);
  EXPECT_TRUE(back) << to_line(words);
  return back.value_or(FromAgent());
}

TEST(agent_words, an_agent_tells_how_a_rank_ended) {
  FromAgent words;
  words.ended = {.rank = 3, .status = {.code = 0, .signal = SIGKILL}, .asked_to_end = true};
  const FromAgent back = sent(words);
  ASSERT_TRUE(back.ended);
  EXPECT_EQ(back.ended->rank, 3);
  EXPECT_EQ(back.ended->status, words.ended->status);
  EXPECT_TRUE(back.ended->asked_to_end);
  EXPECT_FALSE(back.done);
  EXPECT_FALSE(back.dying);
}

TEST(agent_words, a_log_travels_byte_by_byte_of_ranks_that_there_are) {
  FromAgent words;
  words.log = {.rank = 3, .bytes = std::string("caf\xe9 \r\n\0\x1b[m", 11)};
  const FromAgent back = sent(words);
  ASSERT_TRUE(back.log);
  EXPECT_EQ(back.log->rank, 3);
  EXPECT_EQ(back.log->bytes, words.log->bytes);
  words.log->rank = kRanks;  // Its number is part of a file's name.
  EXPECT_FALSE(sent(words).log);
}

TEST(agent_words, a_report_travels_whole_also_where_it_is_not_text) {
  FailureReport report;
  report.rank = 1;
  report.ranks = kRanks;
  report.host = "node2";
  report.pid = 4711;
  report.status = {.code = 3, .signal = 0};
  report.after = std::chrono::milliseconds(1500);
  report.error = PythonError{.place = "train.py:1", .source = "f()", .error = "ValueError: caf\xe9"};
  report.last_lines = {"one", "\xff\xfe \"two\""};
  report.log_file = "logs/rank-1.log";
  report.out_of_memory_kills = 2;
  FromAgent words;
  report.stall = "stall: 'x' is ready on rank 0; missing: rank 1";
  words.done = {.ended_because = {0, 2},
                .killed_after_grace = {2},
                .watchdogs = {{.rank = 2,
                               .group = "0(default_pg)",
                               .call = 7,
                               .operation = "ALLREDUCE",
                               .elements = "NumelIn=4, NumelOut=4",
                               .last_called = "9"}},
                .report = report};
  const FromAgent back = sent(words);
  ASSERT_TRUE(back.done && back.done->report);
  EXPECT_EQ(back.done->ended_because, (std::vector<int>{0, 2}));
  EXPECT_EQ(back.done->killed_after_grace, std::vector<int>{2});
  EXPECT_EQ(failure_block(*back.done->report, false), failure_block(report, false));
  EXPECT_EQ(back.done->report->stall, report.stall);
  ASSERT_EQ(back.done->watchdogs.size(), 1U);
  EXPECT_EQ(judge_watchdogs(back.done->watchdogs, 4)->call, judge_watchdogs(words.done->watchdogs, 4)->call);
}

TEST(agent_words, smaller_words_travel_too) {
  FromAgent words;
  words.report = "ends 2";
  EXPECT_EQ(sent(words).report, "ends 2");
  words = {};
  words.note = "rank 2 (host b, pid 7) ended with exit code 0";
  EXPECT_EQ(sent(words).note, words.note);
  for (int byte = 0; byte < 256; ++byte) words.metrics += static_cast<char>(byte);
  EXPECT_EQ(sent(words).metrics, words.metrics);
  words = {};
  words.dying = false;
  EXPECT_EQ(sent(words).dying, false);
  words = {};
  words.awaits_decision = true;
  EXPECT_TRUE(sent(words).awaits_decision);
}

TEST(agent_words, what_is_no_such_line_is_nothing) {
  for (const char* line : {"[0] gyre-agent: {}", "gyre-agent: ", "gyre-agent: []x", "gyre-agent: {\"ended\": 3}",
                           "gyre-agent: {\"done\": {}}", "gyre-agent: {\"note\": 3}", "gyre-agent: 3"}) {
    const auto words = parse_from_agent(line, kRanks);
    EXPECT_TRUE(!words || (!words->ended && !words->done && words->note.empty())) << line;
  }
  // Of a rank that the job does not have.
  FromAgent strange;
  strange.ended = {.rank = kRanks, .status = {}, .asked_to_end = false};
  EXPECT_FALSE(parse_from_agent(to_line(strange), kRanks)->ended);
}

TEST(agent_words, an_agent_understands_what_it_is_told) {
  using Word = ToAgent::Word;
  for (const ToAgent& words : {ToAgent{Word::kRankHasEnded, 0, "rank 2 (host b, pid 7) ended with exit code 0"},
                               {Word::kARankHasFailed, 0, {}},
                               {Word::kFirstFailure, 3, {}},
                               {Word::kLost, 2, {}},
                               {Word::kStop, SIGINT, {}},
                               {Word::kKill, 0, {}}}) {
    const auto back = parse_to_agent(to_line(words));
    ASSERT_TRUE(back) << to_line(words);
    EXPECT_EQ(back->word, words.word);
    EXPECT_EQ(back->number, words.number);
    EXPECT_EQ(back->text, words.text);
  }
  for (const char* line : {"", "first", "first x", "first -1", "stop 2 3", "killed", "Rank 1"}) {
    EXPECT_FALSE(parse_to_agent(line)) << line;
  }
}

}  // namespace
}  // namespace gyre::launch
