// The launcher from inside a process, for what is awkward to see from outside; tests/e2e/run_test.py does the rest.
#include "gyre/launch/console.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/base/process.h"
#include "gyre/metrics/file.h"
#include "gyre/metrics/news.h"

namespace gyre::launch {
namespace {

using testing::HasSubstr;

class ConsoleTest : public testing::Test {
 protected:
  ConsoleTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "gyre-launch-test-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    out_ = UniqueFd(::open((folder_ / "out").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    err_ = UniqueFd(::open((folder_ / "err").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    options_.environment = {"PATH=/usr/local/bin:/usr/bin:/bin"};
    options_.stdout_fd = out_.get();
    options_.stderr_fd = err_.get();
  }
  ~ConsoleTest() override { std::filesystem::remove_all(folder_); }

  LaunchResult run(int ranks, const std::string& script) {
    options_.ranks = ranks;
    options_.command = {"sh", "-c", script};
    return run_on_console(options_);
  }
  std::string text(const char* name) const { return std::string(as_text(read_file(folder_ / name, 1 << 24))); }

  std::filesystem::path folder_;
  UniqueFd out_;
  UniqueFd err_;
  LaunchOptions options_;
};

TEST_F(ConsoleTest, the_result_tells_how_each_rank_ended) {
  const LaunchResult result = run(3, "[ $GYRE_RANK = 1 ] && exit 7; [ $GYRE_RANK = 0 ] && exit 0; exec sleep 1000");
  EXPECT_EQ(result.exit_code, 7);
  EXPECT_EQ(result.first_failed_rank, 1);
  ASSERT_EQ(result.rank_exit_status.size(), 3U);
  EXPECT_EQ(result.rank_exit_status[0], (ExitStatus{.code = 0, .signal = 0}));
  EXPECT_EQ(result.rank_exit_status[1], (ExitStatus{.code = 7, .signal = 0}));
  EXPECT_EQ(result.rank_exit_status[2], (ExitStatus{.code = 0, .signal = SIGTERM}));
  EXPECT_THAT(text("err"), HasSubstr("rank 1 of 3 failed first"));
}

TEST_F(ConsoleTest, a_success_says_nothing_of_its_own) {
  EXPECT_EQ(run(2, "echo $GYRE_LOCAL_RANK of $GYRE_LOCAL_SIZE").exit_code, 0);
  EXPECT_EQ(text("err"), "");
  EXPECT_THAT(text("out"), testing::AllOf(HasSubstr("[0] 0 of 2\n"), HasSubstr("[1] 1 of 2\n")));
}

/// For a rank: waits until the launcher has noted that.
std::string until_noted(const std::string& rank) {
  return "for i in $(seq 1000); do grep -q '^rank " + rank +
         " (host [^ ]*, pid [0-9]*) ended with exit code 0$' /proc/self/fd/$GYRE_ENDED_FD && exit 0; sleep 0.01; done; "
         "exit 7";
}

TEST_F(ConsoleTest, the_other_ranks_are_told_who_has_ended) {
  EXPECT_EQ(run(3, "[ $GYRE_RANK = 1 ] && exit 0; " + until_noted("1")).exit_code, 0) << text("err");
  EXPECT_EQ(text("err"), "");
}

TEST_F(ConsoleTest, hosts_of_one_job_tell_each_other_who_has_ended) {
  std::array<int, 2> ends;
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  const UniqueFd lifeline(ends[0]);
  const UniqueFd others(ends[1]);
  const std::string note = "rank 2 (host b, pid 7) ended with exit code 0\n";
  ASSERT_EQ(::write(others.get(), note.data(), note.size()), static_cast<ssize_t>(note.size()));
  options_.lifeline_fd = lifeline.get();
  EXPECT_EQ(run(2, "[ $GYRE_RANK = 1 ] && exit 0; " + until_noted("2")).exit_code, 0) << text("err");
  EXPECT_THAT(text("err"), testing::ContainsRegex("gyre-agent: .*rank 1 \\(host .*, pid .*\\) ended with exit code 0"));
}

TEST_F(ConsoleTest, an_agent_leaves_it_to_others_to_say_which_rank_of_the_job_failed_first) {
  std::array<int, 2> ends;
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  const UniqueFd lifeline(ends[0]);
  const UniqueFd starter(ends[1]);
  options_.lifeline_fd = lifeline.get();
  // Rank 1 runs on until it is decided, though that takes longer than failures take to settle.
  SpawnOptions decides;
  decides.argv = {"sh", "-c", "until grep -q '\"code\":7' err; do sleep 0.01; done; sleep 0.3; echo first 0"};
  decides.environment = options_.environment;
  decides.folder = folder_;
  decides.stdout_fd = starter.get();
  const Process starter_process = Process::spawn(decides);
  const LaunchResult result =
      run(2, "[ $GYRE_RANK = 0 ] && { echo last words; exit 7; }; trap 'exit 5' TERM; while :; do sleep 0.01; done");
  EXPECT_EQ(result.first_failed_rank, 0);
  EXPECT_THAT(text("err"), testing::Not(HasSubstr("failed first")));
  EXPECT_THAT(text("err"), HasSubstr("\"ended_because\":[1]"));
  EXPECT_THAT(text("err"), HasSubstr("last words"));
}

TEST_F(ConsoleTest, two_jobs_in_a_row_leave_the_process_as_it_was) {
  sigset_t before;
  ::sigprocmask(SIG_SETMASK, nullptr, &before);
  const auto files = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
  };
  const auto files_before = files();
  EXPECT_EQ(run(2, "exit 0").exit_code, 0);
  EXPECT_EQ(run(2, "exit 5").exit_code, 5);
  EXPECT_EQ(files(), files_before);
  sigset_t after;
  ::sigprocmask(SIG_SETMASK, nullptr, &after);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP}) {
    EXPECT_EQ(::sigismember(&before, signal), ::sigismember(&after, signal));
  }
  struct sigaction pipe{};
  ::sigaction(SIGPIPE, nullptr, &pipe);
  EXPECT_EQ(pipe.sa_handler, SIG_DFL);
}

TEST_F(ConsoleTest, impossible_numbers_of_ranks_are_refused_before_anything_starts) {
  for (const int ranks : {0, -1, kMostRanksPerHost + 1}) {
    try {
      run(ranks, "echo started");
      ADD_FAILURE() << ranks << " ranks were started";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    }
  }
  EXPECT_EQ(text("out"), "");
}

TEST_F(ConsoleTest, a_log_file_on_a_full_disk_does_not_end_the_job) {
  options_.log_dir = folder_ / "logs";
  std::filesystem::create_directory(*options_.log_dir);
  std::filesystem::create_symlink("/dev/full", *options_.log_dir / "rank-0.log");
  EXPECT_EQ(run(1, "echo one; sleep 0.1; echo two").exit_code, 0);
  EXPECT_EQ(text("out"), "[0] one\n[0] two\n");
  EXPECT_THAT(text("err"), HasSubstr("rank-0.log is incomplete from here on: cannot write: No space left on device"));
}

/// What became of the ranks, as a metrics file has it.
class Events : public metrics::FileVisitor {
 public:
  void sample(const metrics::Sample&) override {}
  void note(std::string_view key, std::string_view) override { notes += fmt::format("{} ", key); }
  void event(std::string_view line) override {
    const auto news = metrics::parse_news(line);
    ASSERT_TRUE(news) << line;
    all += fmt::format("{}:{}:{} ", static_cast<int>(news->kind), news->rank, news->signal);
    reports += news->kind == metrics::News::Kind::kFailed ? news->text : "";
  }
  std::string all;
  std::string notes;
  std::string reports;
};

// A job server knows of its jobs' ranks what their launchers have written down.
TEST_F(ConsoleTest, the_metrics_file_says_what_became_of_the_ranks) {
  options_.metrics = folder_ / "metrics";
  run(2, "[ $GYRE_RANK = 1 ] && kill -9 $$; exec sleep 1000");
  Events events;
  metrics::read_metrics(folder_ / "metrics", events);
  EXPECT_EQ(events.all, "0:0:0 0:1:0 1:1:9 1:0:15 3:1:0 6:-1:0 ");
  EXPECT_THAT(events.reports, HasSubstr("rank 1 of 2 failed first"));
  EXPECT_THAT(events.notes, HasSubstr("command"));
}

// In commands and reports a secret of the job may stand; and a disk that is full is no reason to fail.
TEST_F(ConsoleTest, a_services_metrics_have_no_words_of_the_job) {
  options_.metrics = folder_ / "metrics";
  options_.metrics_for_service = true;
  run(1, "echo secret >&2; exit 3");
  Events events;
  metrics::read_metrics(folder_ / "metrics", events);
  EXPECT_EQ(events.all, "0:0:0 1:0:0 3:0:0 6:-1:0 ");
  EXPECT_EQ(events.reports, "");
  EXPECT_EQ(events.notes, "ranks servers host started gyre exit_code ");
  options_.metrics = folder_ / "none" / "metrics";
  EXPECT_EQ(run(1, "exit 0").exit_code, 0);
}

}  // namespace
}  // namespace gyre::launch
