// A timeline is for looking at after things went wrong, so the file must be readable at every moment.
#include "gyre/base/timeline.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <nlohmann/json.hpp>
#include <thread>

#include "gyre/base/bytes.h"
#include "gyre/base/clock.h"
#include "gyre/base/error.h"

namespace gyre {
namespace {

class TimelineTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("gyre_timeline_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  nlohmann::json parse() const {
    const Bytes bytes = read_file(path(), 1 << 28);
    return nlohmann::json::parse(as_text(bytes));
  }
  std::filesystem::path path() const { return folder_ / "timeline.json"; }

  std::filesystem::path folder_;
};

// Any thread may start one; two at once ended the process.
TEST_F(TimelineTest, threads_that_start_one_at_the_same_time_replace_each_others) {
  Timeline timeline(null_logger());
  const auto start_often = [&] {
    for (int i = 0; i < 200; ++i) timeline.start(path(), false);
  };
  std::thread other(start_often);
  start_often();
  other.join();
  timeline.begin("x", "QUEUE");
  timeline.stop();
  EXPECT_EQ(parse().back().at("name"), "QUEUE");
}

TEST_F(TimelineTest, each_tensor_has_a_row_with_its_phases) {
  Timeline timeline(null_logger());
  timeline.start(path(), true);
  timeline.begin("allreduce.\"quoted\"\n", "NEGOTIATE_ALLREDUCE");
  timeline.instant("allreduce.\"quoted\"\n", "0");
  timeline.end("allreduce.\"quoted\"\n");
  timeline.begin("broadcast.x", "BROADCAST");
  timeline.end("broadcast.x");
  timeline.mark_cycle();
  timeline.stop();
  const auto events = parse();
  int begins = 0;
  int ends = 0;
  bool cycle = false;
  for (const auto& event : events) {
    begins += event.at("ph") == "B" ? 1 : 0;
    ends += event.at("ph") == "E" ? 1 : 0;
    cycle = cycle || event.value("name", "") == "CYCLE_START";
  }
  EXPECT_EQ(begins, 2);
  EXPECT_EQ(ends, 2);
  EXPECT_TRUE(cycle);
  EXPECT_EQ(events.at(1).at("args").at("name"), "allreduce.\"quoted\"\n");
  EXPECT_TRUE(events.at(0).at("args").contains("start_time_since_epoch_in_micros"));
}

// Waits for data are known when they are over; their parts must not stick out of them, whatever is rounded.
TEST_F(TimelineTest, a_phase_that_is_over_contains_its_parts) {
  using std::chrono::nanoseconds;
  Timeline timeline(null_logger());
  const auto before = SteadyClock::now();
  timeline.start(path(), false);
  const auto began = SteadyClock::now() + nanoseconds(700);
  timeline.add("data: train", {.name = "TOO_EARLY", .began = before, .lasted = nanoseconds(1)});
  timeline.add("data: train", {.name = "WAIT", .began = began, .lasted = nanoseconds(2'500), .detail = "step \"3\""});
  timeline.add("data: train", {.name = "SOURCE", .began = began, .lasted = nanoseconds(1'200)});
  timeline.add("data: train", {.name = "INFLATE", .began = began + nanoseconds(1'200), .lasted = nanoseconds(1'300)});
  timeline.stop();
  timeline.add("data: train", {.name = "TOO_LATE", .began = began, .lasted = nanoseconds(1)});
  std::vector<nlohmann::json> phases;
  for (const auto& event : parse()) {
    if (event.at("ph") == "X") phases.push_back(event);
  }
  ASSERT_EQ(phases.size(), 3U);
  EXPECT_EQ(phases[0].at("args").at("detail"), "step \"3\"");
  const auto end = [](const nlohmann::json& phase) { return phase.at("ts").get<int>() + phase.at("dur").get<int>(); };
  EXPECT_EQ(phases[1].at("ts"), phases[0].at("ts"));
  EXPECT_EQ(phases[2].at("ts"), end(phases[1]));
  EXPECT_EQ(end(phases[2]), end(phases[0]));
  EXPECT_EQ(phases[2].at("pid"), phases[0].at("pid"));
}

// A training with DDP has tens of thousands of collectives; a row for each made the trace unreadable.
TEST_F(TimelineTest, the_collectives_of_a_process_group_share_a_row_in_which_none_hides_another) {
  Timeline timeline(null_logger());
  timeline.start(path(), false);
  timeline.instant("collective 1 of process group '0'", "1");
  for (const char* name : {"collective 1 of process group '0'", "collective 2 of process group '0'"}) {
    timeline.begin(name, "ALLREDUCE");
  }
  timeline.begin("collective 1 of process group '0'", "GYRE_ALLREDUCE");
  timeline.end("collective 1 of process group '0'");
  timeline.end("collective 1 of process group '0'");
  timeline.begin("collective 3 of process group '0'.1", "ALLREDUCE");  // While 2 is under way still.
  timeline.end("collective 2 of process group '0'");
  timeline.end("collective 3 of process group '0'.1");
  timeline.begin("set 1: collective 1 of process group 'part'", "BROADCAST");
  timeline.end("set 1: collective 1 of process group 'part'");
  timeline.begin("collective of stamps", "ALLREDUCE");
  timeline.end("collective of stamps");
  timeline.stop();
  std::vector<std::string> rows;
  std::vector<int> lines;  // Of the ends, in their order.
  for (const auto& event : parse()) {
    if (event.value("name", "") == "process_name") rows.push_back(event.at("args").at("name"));
    if (event.at("ph") == "E") lines.push_back(event.at("tid"));
  }
  EXPECT_EQ(rows,
            (std::vector<std::string>{"gyre", "process group '0'", "process group 'part'", "collective of stamps"}));
  EXPECT_EQ(lines, (std::vector<int>{0, 0, 1, 0, 0, 0}));
}

TEST_F(TimelineTest, the_file_is_valid_after_every_one_of_five_starts_and_stops) {
  Timeline timeline(null_logger());
  for (int cycle = 0; cycle < 5; ++cycle) {
    timeline.start(path(), false);
    EXPECT_TRUE(parse().is_array());
    timeline.begin("t", "X");
    timeline.end("t");
    if (cycle == 2) timeline.start(path(), false);  // Started twice.
    timeline.stop();
    EXPECT_TRUE(parse().is_array());
  }
  timeline.begin("t", "after the end");
  EXPECT_TRUE(parse().is_array());
}

TEST_F(TimelineTest, the_file_is_valid_after_kill_9) {
  for (std::uintmax_t round = 0; round < 5; ++round) {
    const pid_t child = ::fork();
    if (child == 0) {
      Timeline timeline(null_logger());
      timeline.start(path(), false);
      for (;;) {
        for (int event = 0; event < 50; ++event) {
          timeline.begin("a tensor with a long name to fill pages", "NEGOTIATE_ALLREDUCE");
          timeline.end("a tensor with a long name to fill pages");
        }
        std::this_thread::yield();  // A loop that never lets go of the queue would keep the writer from it.
      }
    }
    const Deadline deadline = Deadline::after(std::chrono::seconds(60));
    const auto written = [&] {
      std::error_code ignored;
      const auto size = std::filesystem::file_size(path(), ignored);
      return ignored ? 0 : size;
    };
    while (written() < 40'000 + 1'000 * round && !deadline.passed()) std::this_thread::yield();
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    // What `gyre run` does at the end of a job; this child did nothing but write, so it was killed inside a write.
    EXPECT_TRUE(complete_trace_file(path()));
    EXPECT_GT(parse().size(), 100U);
    std::filesystem::remove(path());
  }
}

// Those of a server's jobs lie among logs, which have a limit.
TEST_F(TimelineTest, ends_where_its_file_may_have_no_more) {
  constexpr std::int64_t kMost = 2'000;
  Timeline timeline(null_logger());
  timeline.start(path(), false, kMost);
  const Deadline deadline = Deadline::after(std::chrono::seconds(20));
  while (timeline.enabled() && !deadline.passed()) {
    timeline.begin("x", "QUEUE");
    timeline.end("x");
    std::this_thread::yield();
  }
  EXPECT_FALSE(timeline.enabled());
  timeline.stop();
  EXPECT_GT(parse().size(), 2U);
  EXPECT_LE(std::filesystem::file_size(path()), kMost + kTraceClosing.size());
}

TEST_F(TimelineTest, a_path_that_cannot_be_written_is_one_clear_error) {
  Timeline timeline(null_logger());
  EXPECT_THROW(timeline.start(folder_ / "missing" / "timeline.json", false), Error);
  EXPECT_FALSE(timeline.enabled());
}

TEST_F(TimelineTest, a_full_disk_ends_the_timeline_and_keeps_it_valid) {
  Timeline timeline(null_logger());
  const pid_t child = ::fork();
  if (child == 0) {
    // A limit on the file's size fails the write as a full disk does.
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{10'000, 10'000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    timeline.start(path(), false);
    while (timeline.enabled()) {
      timeline.begin("t", "PHASE");
      timeline.end("t");
    }
    timeline.stop();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_GT(parse().size(), 10U);
}

}  // namespace
}  // namespace gyre
