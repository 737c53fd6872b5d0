// Somebody reads what this writes, perhaps on a terminal that shows half a character as rubbish.
#include "gyre/jobs/client/log_lines.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace gyre::jobs::client {
namespace {

class LogLinesTest : public testing::Test {
 protected:
  LogLines::Sink sink() {
    return [this](LogStream stream, std::string_view text) {
      (stream == LogStream::kOut ? out_ : error_) += text;
      pieces_.emplace_back(text);
    };
  }

  std::string out_;
  std::string error_;
  std::vector<std::string> pieces_;
};

TEST_F(LogLinesTest, stdout_and_stderr_are_shown_as_they_come) {
  LogLines lines(sink());
  lines.add("stdout.txt", "epoch 1");
  lines.add("stderr.txt", "warning\n");
  EXPECT_EQ(out_, "epoch 1");  // Without an end of the line yet: a progress bar, perhaps.
  EXPECT_EQ(error_, "warning\n");
}

TEST_F(LogLinesTest, lines_of_other_files_have_a_name_in_front_and_are_whole) {
  LogLines lines(sink());
  lines.add("stdout-wk-0.txt", "one\ntw");
  EXPECT_EQ(out_, "[wk-0] one\n");
  lines.add("stderr-job_prep.txt", "oops\n");
  lines.add("stdout-wk-0.txt", "o\nthree");
  lines.finish();
  EXPECT_EQ(out_, "[wk-0] one\n[wk-0] two\n[wk-0] three\n");
  EXPECT_EQ(error_, "[job_prep] oops\n");
}

TEST_F(LogLinesTest, no_character_is_split_wherever_the_bytes_are_cut) {
  const std::string text = "aé€😀z";
  LogLines lines(sink());
  for (const char byte : text) lines.add("stdout.txt", std::string(1, byte));
  EXPECT_EQ(out_, text);
  EXPECT_EQ(pieces_, (std::vector<std::string>{"a", "é", "€", "😀", "z"}));
}

TEST_F(LogLinesTest, an_unfinished_character_at_the_end_is_not_lost) {
  LogLines lines(sink());
  lines.add("stdout.txt", "x\xe2\x82");
  EXPECT_EQ(out_, "x");
  lines.finish();
  EXPECT_EQ(out_, "x\xe2\x82");
}

TEST_F(LogLinesTest, a_file_that_was_asked_for_by_name_is_shown_as_it_is) {
  LogLines lines(sink(), false);
  lines.add("execution.log", "began\n");
  lines.add("stderr-wk-1.txt", "odd\n");
  EXPECT_EQ(out_, "began\nodd\n");
}

TEST_F(LogLinesTest, only_names_of_logs_are_logs) {
  EXPECT_TRUE(is_log("stdout.txt"));
  EXPECT_TRUE(is_log("stderr-job_prep-node-1.txt"));
  EXPECT_FALSE(is_log("execution.log"));
  EXPECT_FALSE(is_log("stdout"));
  EXPECT_FALSE(is_log("result.txt"));
}

TEST(LastLines, are_as_many_as_there_are_and_as_are_wanted) {
  EXPECT_EQ(last_lines("a\nb\nc\n", 2), "b\nc");
  EXPECT_EQ(last_lines("a\nb", 5), "a\nb");
  EXPECT_EQ(last_lines("\na", 1), "a");
  EXPECT_EQ(last_lines("", 3), "");
}

TEST(LastLine, is_what_a_terminal_would_show) {
  EXPECT_EQ(last_line("a\nb\n"), "b");
  EXPECT_EQ(last_line("a\nb"), "b");
  EXPECT_EQ(last_line("a\n\n  \n"), "a");
  EXPECT_EQ(last_line("10 %\r20 %\r30 %\r"), "30 %");
  EXPECT_EQ(last_line("end of a long line\r\n"), "end of a long line");
  EXPECT_EQ(last_line("\n"), "");
  EXPECT_EQ(last_line(""), "");
}

// All ranks of `gyre run` in a job write one log.
TEST(LastLine, of_a_rank_is_its_own) {
  const std::string_view log = "half a line of 1\n[1]  one\n[10] ten\n[1]  more\n[0]  zero\n[10] \n";
  EXPECT_EQ(last_line(log, 1), "more");
  EXPECT_EQ(last_line(log, 10), "ten");
  EXPECT_EQ(last_line(log, 0), "zero");
  EXPECT_EQ(last_line(log, 2), "");
}

}  // namespace
}  // namespace gyre::jobs::client
