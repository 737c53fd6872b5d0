#include "gyre/page/job_state.h"

#include <gtest/gtest.h>

#include <csignal>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace gyre::page {
namespace {

using Json = nlohmann::json;

class PageJobState : public testing::Test {
 protected:
  void start(int ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      state_.hear({.kind = News::Kind::kStarted, .rank = rank, .process = 100 + rank, .text = "default"}, 0);
    }
  }
  void end(int rank, int code, int signal, bool asked) {
    state_.hear({.kind = News::Kind::kEnded, .rank = rank, .code = code, .signal = signal, .asked = asked}, 77);
  }
  void log(int rank, std::int64_t step) {
    metrics_.sample({.name = "loss", .rank = rank, .step = step, .time_us = ++time_us_, .value = 1});
  }
  Json json() const { return Json::parse(state_.json("job", metrics_, logs_)); }
  std::vector<std::string> phases() const {
    std::vector<std::string> all;
    const Json job = json();
    for (const Json& rank : job["ranks"]) {
      all.push_back(std::to_string(rank["rank"].get<int>()) + " " + rank["phase"].get<std::string>());
    }
    return all;
  }

  JobState state_;
  metrics::Overview metrics_;
  std::map<int, std::uint64_t> logs_;
  std::int64_t time_us_ = 0;
};

// Somebody who looks at 64 ranks wants to see first which needs attention.
TEST_F(PageJobState, the_late_come_before_those_that_keep_up) {
  start(4);
  EXPECT_EQ(phases(), (std::vector<std::string>{"0 starting", "1 starting", "2 starting", "3 starting"}));
  log(0, 50);
  EXPECT_EQ(phases(), (std::vector<std::string>{"0 running", "1 running", "2 running", "3 running"}));
  for (const int rank : {1, 2}) log(rank, 50);
  log(3, 40);
  log(1, 51);
  EXPECT_EQ(phases(), (std::vector<std::string>{"3 late", "0 running", "1 running", "2 running"}));
  EXPECT_EQ(json()["ranks"][0]["detail"], "11 steps behind");
}

// Hung in its own code at the same step as the others, which tell that they wait; it tells nothing any more.
TEST_F(PageJobState, a_rank_that_the_others_wait_for_is_late_at_the_same_step) {
  start(3);
  constexpr std::int64_t kSecond = 1'000'000;
  const auto sample = [&](std::string_view name, int rank, std::int64_t second, double value) {
    metrics_.sample({.name = name, .rank = rank, .step = 5, .time_us = second * kSecond, .value = value});
  };
  for (const int rank : {0, 1, 2}) {
    for (const int second : {1, 2}) sample("gyre/waiting_seconds", rank, second, 0.001 * second);
    sample("loss", rank, 2, 1);
  }
  EXPECT_EQ(phases(), (std::vector<std::string>{"0 running", "1 running", "2 running"}));
  for (int second = 3; second <= 20; ++second) {
    for (const int rank : {0, 2}) sample("gyre/waiting_seconds", rank, second, second - 2);
    sample("gyre/cpu_cores", 1, second, 0);
  }
  EXPECT_EQ(phases(), (std::vector<std::string>{"1 late", "0 running", "2 running"}));
  const Json late = json()["ranks"][0];
  EXPECT_EQ(late["detail"], "the others wait for it");
  EXPECT_EQ(late["waiting"], nullptr);
}

// The staging of a data set can take an hour, in which there is nothing else to see.
TEST_F(PageJobState, what_comes_before_the_ranks_is_said) {
  state_.hear({.kind = News::Kind::kPreparing, .text = "staging the data set, 40 %"}, 0);
  EXPECT_EQ(json()["state"], "preparing");
  EXPECT_EQ(json()["preparing"], "staging the data set, 40 %");
  state_.hear({.kind = News::Kind::kPreparing, .code = 1, .text = "the data set is here"}, 0);
  EXPECT_EQ(json()["events"][0]["text"], "the data set is here");
  start(1);
  EXPECT_EQ(json()["state"], "running");
  EXPECT_EQ(json()["preparing"], "");
}

TEST_F(PageJobState, a_job_that_could_not_be_prepared_has_failed_without_a_rank) {
  state_.hear({.kind = News::Kind::kPreparing, .text = "staging the data set, 40 %"}, 0);
  state_.hear({.kind = News::Kind::kFailed, .text = "the disk is full"}, 0);
  state_.hear({.kind = News::Kind::kFinished, .code = 1}, 0);
  EXPECT_EQ(json()["state"], "failed");
  EXPECT_EQ(json()["first_failed_rank"], nullptr);
  EXPECT_EQ(json()["report"], "the disk is full");
  EXPECT_EQ(json()["events"][0]["text"], "nothing was started");
}

// The launcher ends all ranks after the first failure: those that it ended are no failures.
TEST_F(PageJobState, the_rank_that_failed_first_is_named_first) {
  start(3);
  logs_[0] = 1;
  end(2, 0, SIGKILL, false);
  EXPECT_EQ(phases(), (std::vector<std::string>{"2 failed", "1 starting", "0 running"}));
  EXPECT_EQ(json()["ranks"][0]["detail"], "was killed by SIGKILL");
  EXPECT_EQ(json()["ranks"][0]["log_end"], 77);
  end(0, 0, SIGTERM, true);
  end(1, 1, 0, false);  // Failed because of rank 2, before it was asked to end.
  state_.hear({.kind = News::Kind::kFailed, .rank = 2, .text = "the report"}, 0);
  EXPECT_FALSE(state_.is_over());
  state_.hear({.kind = News::Kind::kFinished, .code = 137}, 0);
  EXPECT_TRUE(state_.is_over());
  EXPECT_EQ(phases(), (std::vector<std::string>{"2 failed", "1 failed", "0 stopped"}));
  EXPECT_EQ(json()["state"], "failed");
  EXPECT_EQ(json()["report"], "the report");
  EXPECT_EQ(json()["exit_code"], 137);
}

// A job of days must not grow the page.
TEST_F(PageJobState, the_oldest_events_are_dropped) {
  for (int i = 0; i < 600; ++i) {
    start(1);
    end(0, 0, 0, false);
  }
  const Json events = json()["events"];
  EXPECT_EQ(events.size(), JobState::kMostEvents);
  EXPECT_EQ(events.back()["number"], 1199);
}

// The page's process reads what the launcher writes, and skips what it cannot read.
TEST_F(PageJobState, news_survive_the_pipe) {
  const News news{.kind = News::Kind::kEnded,
                  .rank = 3,
                  .process = 4,
                  .code = 5,
                  .signal = 6,
                  .asked = true,
                  .time_us = 7,
                  .text = "a\nb<\xff"};
  const std::string line = to_line(news);
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  const auto back = metrics::parse_news(line);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->kind, news.kind);
  EXPECT_EQ(back->signal, 6);
  EXPECT_EQ(back->text, "a\nb<\xef\xbf\xbd");
  EXPECT_FALSE(metrics::parse_news("{}"));
  EXPECT_FALSE(metrics::parse_news("[1"));
  EXPECT_FALSE(metrics::parse_news(
      R"({"kind":99,"rank":0,"process":0,"code":0,"signal":0,"asked":false,"time_us":0,"text":""})"));
}

// Of a job over several hosts, the host says where to look.
TEST_F(PageJobState, ranks_have_the_hosts_that_the_launcher_names) {
  state_.hear({.kind = News::Kind::kStarted, .rank = 0, .text = "default", .host = "node1"}, 0);
  state_.hear({.kind = News::Kind::kStarted, .rank = 1, .process = 7, .text = "default", .host = "node2"}, 0);
  const Json job = json();
  EXPECT_EQ(job["ranks"][1]["host"], "node2");
  EXPECT_EQ(job["events"][0]["text"], "rank 0 started on node1");
  EXPECT_EQ(job["events"][1]["text"], "rank 1 started on node2 as process 7");
}

// The connection to a host was lost: the report says so, and no rank is to blame.
TEST_F(PageJobState, a_job_that_no_rank_has_failed_says_so) {
  start(1);
  state_.hear({.kind = News::Kind::kFailed, .rank = -1, .text = "lost the connection to host node2"}, 0);
  state_.hear({.kind = News::Kind::kFinished, .code = 255}, 0);
  const Json job = json();
  EXPECT_EQ(job["report"], "lost the connection to host node2");
  EXPECT_EQ(job["first_failed_rank"], nullptr);
  EXPECT_EQ(job["events"][1]["text"], "the job failed, and no rank was the first");
  EXPECT_EQ(phases(), (std::vector<std::string>{"0 lost"}));
}

// Those who look at a terminal see what is logged, of a bounded number of names.
TEST_F(PageJobState, the_latest_values_are_those_of_the_first_names) {
  start(1);
  const std::string alphabet = "abcdefghijkl";
  for (const char letter : alphabet) {
    metrics_.sample({.name = std::string(1, letter), .rank = 0, .step = 3, .time_us = 2'000'000, .value = 0.5});
  }
  const Json job = json();
  EXPECT_EQ(job["names"], alphabet.size());
  EXPECT_EQ(job["latest"].size(), JobState::kMostLatest);
  EXPECT_EQ(job["latest"][0], (Json{{"name", "a"}, {"step", 3}, {"value", 0.5}}));
  EXPECT_EQ(job["ranks"][0]["value_time"], 2.0);
}

}  // namespace
}  // namespace gyre::page
