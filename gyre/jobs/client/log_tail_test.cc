// People watch their training through this; a lost last line is often the one that says what went wrong.
#include "gyre/jobs/client/log_tail.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <thread>

#include "gyre/jobs/client/client_test_support.h"

namespace gyre::jobs::client {
namespace {

class LogTailTest : public ClientTest {
 protected:
  LogLines::Sink sink() {
    return [this](LogStream stream, std::string_view text) { (stream == LogStream::kOut ? out_ : error_) += text; };
  }
  void finish_job() const { service_->set_state({"w", "e", "j"}, resources::ExecutionState::kSucceeded); }

  std::string out_;
  std::string error_;
};

TEST_F(LogTailTest, a_job_that_has_not_begun_has_no_logs_and_that_is_no_failure) {
  Session session = session_of("ada-token");
  ServerLogs logs_of_job(session, kPlace);
  LogTail tail(logs_of_job, {}, sink());
  EXPECT_FALSE(tail.read_new());
  EXPECT_FALSE(tail.found_logs());
}

TEST_F(LogTailTest, bytes_come_once_and_those_of_the_last_moment_too) {
  Session session = session_of("ada-token");
  ServerLogs logs_of_job(session, kPlace);
  LogTail tail(logs_of_job, {}, sink());
  write_log("j", "stdout.txt", "one\n");
  EXPECT_FALSE(tail.read_new());
  write_log("j", "stdout.txt", "two\n");
  write_log("j", "stdout-job_prep.txt", "prepared");
  EXPECT_FALSE(tail.read_new());
  EXPECT_EQ(out_, "one\ntwo\n");
  write_log("j", "stdout.txt", "last words without an end");
  finish_job();
  EXPECT_TRUE(tail.read_new());
  EXPECT_EQ(out_, "one\ntwo\nlast words without an end[job_prep] prepared\n");
}

TEST_F(LogTailTest, a_file_that_was_made_again_is_read_from_its_beginning) {
  Session session = session_of("ada-token");
  ServerLogs logs_of_job(session, kPlace);
  service_->set_attempts({"w", "e", "j"}, 1);
  LogTail tail(logs_of_job, {}, sink(), [this](int attempt) { out_ += "AGAIN " + std::to_string(attempt) + "\n"; });
  write_log("j", "stdout.txt", "first attempt\n");
  tail.read_new();
  service_->set_attempts({"w", "e", "j"}, 2);
  // Both exist for a moment, so that the new one's inode is another one; and it is longer than what was read.
  std::ofstream(logs() / "new") << "second attempt, which says more\n";
  std::filesystem::rename(logs() / "new", logs() / "stdout.txt");
  tail.read_new();
  EXPECT_EQ(out_, "first attempt\nAGAIN 2\nsecond attempt, which says more\n");
}

TEST_F(LogTailTest, a_restart_of_the_server_costs_no_byte_and_doubles_none) {
  Session session = session_of("ada-token", std::chrono::seconds(30));
  ServerLogs logs_of_job(session, kPlace);
  LogTail tail(logs_of_job, {}, sink());
  write_log("j", "stdout.txt", "before\n");
  tail.read_new();
  start_again();
  write_log("j", "stdout.txt", "after\n");
  finish_job();
  EXPECT_TRUE(tail.read_new());
  EXPECT_EQ(out_, "before\nafter\n");
}

TEST_F(LogTailTest, following_ends_with_the_job_whatever_is_written_meanwhile) {
  Session session = session_of("ada-token", std::chrono::seconds(30));
  std::string expected;
  for (int i = 0; i < 200; ++i) expected += "line " + std::to_string(i) + " é\n";
  std::thread writer([&] {
    for (std::size_t at = 0; at < expected.size(); at += 7) write_log("j", "stdout.txt", expected.substr(at, 7));
    finish_job();
  });
  ServerLogs logs_of_job(session, kPlace);
  LogTail tail(logs_of_job, {}, sink());
  tail.follow();
  writer.join();
  EXPECT_EQ(out_, expected);
}

// Between a job's first line and its reader stands the pause alone: a job whose nodes take a second to come was read
// half a second later. And hundreds of followers of a job that says nothing must not ask all the time.
TEST_F(LogTailTest, a_follower_pauses_for_a_part_of_the_time_that_it_has_waited) {
  using std::chrono::milliseconds;
  EXPECT_EQ(pause_after(milliseconds(0), false), milliseconds(50));
  EXPECT_EQ(pause_after(milliseconds(1'200), false), milliseconds(150));
  EXPECT_EQ(pause_after(milliseconds(60'000), false), milliseconds(1'000));
  EXPECT_EQ(pause_after(milliseconds(0), true), milliseconds(250));
  EXPECT_EQ(pause_after(milliseconds(60'000), true), milliseconds(1'000));
}

TEST_F(LogTailTest, one_file_alone_is_shown_as_it_is) {
  write_log("j", "execution.log", "began\n");
  write_log("j", "stdout.txt", "not this\n");
  Session session = session_of("ada-token");
  ServerLogs logs_of_job(session, kPlace);
  LogTail tail(logs_of_job, {"execution.log"}, sink());
  tail.read_all();
  EXPECT_EQ(out_, "began\n");
}

// `gyre job run` has no server in between.
TEST_F(LogTailTest, a_folder_of_this_machine_is_read_alike_and_nothing_but_its_regular_files) {
  std::filesystem::path folder;
  bool ended = false;
  FolderLogs folder_logs([&] { return folder; }, [&] { return ended; });
  LogTail tail(folder_logs, {}, sink());
  EXPECT_FALSE(tail.read_new());
  write_log("j", "stdout.txt", "one\n");
  write_log("j", "stderr-wk-0.txt", "a warning");
  std::filesystem::create_symlink("/etc/hostname", logs() / "stdout-link.txt");
  ASSERT_EQ(::mkfifo((logs() / "stdout-pipe.txt").c_str(), 0600), 0);
  folder = logs();
  EXPECT_FALSE(tail.read_new());
  EXPECT_EQ(out_, "one\n");
  EXPECT_EQ(error_, "");
  ended = true;
  EXPECT_TRUE(tail.read_new());
  EXPECT_EQ(error_, "[wk-0] a warning\n");
}

}  // namespace
}  // namespace gyre::jobs::client
