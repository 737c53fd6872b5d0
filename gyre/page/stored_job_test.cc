// A job of the job server shows its ranks and charts by files that its nodes have written, and that nobody believes.
#include "gyre/page/stored_job.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "gyre/base/rank_file.h"
#include "gyre/base/trace_file.h"
#include "gyre/metrics/file.h"
#include "gyre/net/http/error.h"
#include "gyre/page/open_jobs.h"

namespace gyre::page {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using metrics::News;

class Folder final : public StoredJobFiles {
 public:
  Folder(fs::path path, const Facts& facts) : path_(std::move(path)), facts_(facts) {}

  Facts facts() override { return facts_; }
  std::vector<File> list() override {
    std::vector<File> files;
    for (const auto& entry : fs::directory_iterator(path_)) {
      files.push_back({.name = entry.path().filename(), .bytes = entry.file_size()});
    }
    return files;
  }
  UniqueFd open(const std::string& name) override {
    return UniqueFd(::open((path_ / name).c_str(), O_RDONLY | O_CLOEXEC));
  }

 private:
  fs::path path_;
  const Facts& facts_;
};

class PageStoredJob : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "gyre-stored-job-test-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  void TearDown() override { fs::remove_all(folder_); }

  /// The file that the launcher of that node writes.
  metrics::FileWriter& writer(int attempt, int node) {
    const metrics::JobFile file{.attempt = attempt, .node = node};
    auto& writer = writers_[file];
    if (!writer) writer = std::make_unique<metrics::FileWriter>(folder_ / name_of(file));
    return *writer;
  }
  void tell(metrics::FileWriter& file, News news) {
    news.time_us = ++time_us_;
    file.event(to_line(news));
  }
  void start(metrics::FileWriter& file, int rank) {
    tell(file, {.kind = News::Kind::kStarted, .rank = rank, .process = 100 + rank, .text = "default"});
  }
  void log(metrics::FileWriter& file, int rank, std::int64_t step) {
    file.add(std::vector<metrics::Sample>{
        {.name = "loss", .rank = rank, .step = step, .time_us = ++time_us_, .value = 1.0 / static_cast<double>(step)}});
  }
  std::unique_ptr<StoredJob> job() const {
    return std::make_unique<StoredJob>("j", std::make_unique<Folder>(folder_, facts_));
  }
  static std::vector<std::string> phases(const Json& job) {
    std::vector<std::string> all;
    for (const Json& rank : job["ranks"]) {
      all.push_back(fmt::format("{} {}", rank["rank"].get<int>(), rank["phase"].get<std::string>()));
    }
    return all;
  }

  fs::path folder_;
  StoredJobFiles::Facts facts_;
  std::map<metrics::JobFile, std::unique_ptr<metrics::FileWriter>> writers_;
  std::int64_t time_us_ = 1'000'000;
};

// The failures of other ranks follow from the first, whichever node is heard first.
TEST_F(PageStoredJob, the_rank_that_failed_first_on_any_node_is_named_first) {
  auto& second = writer(1, 1);
  auto& first = writer(1, 0);
  for (const int rank : {0, 1}) start(first, rank);
  for (const int rank : {2, 3}) start(second, rank);
  tell(second, {.kind = News::Kind::kEnded, .rank = 3, .signal = 9});
  tell(second, {.kind = News::Kind::kFailed, .rank = 3});
  tell(first, {.kind = News::Kind::kEnded, .rank = 0, .code = 1});
  tell(first, {.kind = News::Kind::kFailed, .rank = 0});
  tell(first, {.kind = News::Kind::kStopping, .signal = 15});
  tell(first, {.kind = News::Kind::kEnded, .rank = 1, .signal = 15, .asked = true});
  tell(second, {.kind = News::Kind::kEnded, .rank = 2, .signal = 15, .asked = true});
  facts_ = {.is_over = true, .exit_code = 137, .ended_us = time_us_};
  const auto stored = job();
  const Json shown = Json::parse(*stored->job_json());
  EXPECT_EQ(shown["state"], "failed");
  EXPECT_EQ(shown["first_failed_rank"], 3);
  EXPECT_EQ(shown["ranks"][0]["rank"], 3);
  EXPECT_EQ(shown["ranks"][0]["detail"], "was killed by SIGKILL; it failed first");
  EXPECT_TRUE(stored->versions().is_over);
}

// Prometheus asks for what is so now.
TEST_F(PageStoredJob, the_latest_values_are_for_prometheus) {
  for (const int step : {1, 2}) log(writer(1, 0), 0, step);
  EXPECT_EQ(job()->prometheus_text(), R"(# HELP gyre_logged_value The latest value that the program has logged.
# TYPE gyre_logged_value gauge
gyre_logged_value{name="loss",rank="0"} 0.5
# HELP gyre_logged_step The step of that value.
# TYPE gyre_logged_step gauge
gyre_logged_step{name="loss",rank="0"} 2
)");
}

// A job that was tried again goes on in its charts, and its ranks are those of the last attempt.
TEST_F(PageStoredJob, a_second_attempt_is_a_restart) {
  auto& first = writer(1, 0);
  start(first, 0);
  log(first, 0, 1);
  tell(first, {.kind = News::Kind::kEnded, .rank = 0, .signal = 9});
  tell(first, {.kind = News::Kind::kFailed, .rank = 0});
  auto& second = writer(2, 0);
  start(second, 0);
  EXPECT_EQ(phases(Json::parse(*job()->job_json())), (std::vector<std::string>{"0 starting"}))
      << "the step is the first attempt's";
  log(second, 0, 2);
  const auto stored = job();
  const Json shown = Json::parse(*stored->job_json());
  EXPECT_EQ(shown["restarts"], 1);
  EXPECT_EQ(shown["state"], "running");
  EXPECT_EQ(phases(shown), (std::vector<std::string>{"0 running"}));
  const Json chart = Json::parse(*stored->chart_json("loss", {}));
  EXPECT_EQ(chart["lines"][0]["step"], (Json{1, 2}));
}

// A node that was lost has not said how its ranks ended.
TEST_F(PageStoredJob, a_rank_that_was_not_heard_of_again_does_not_run_in_a_job_that_is_over) {
  start(writer(1, 0), 0);
  facts_ = {.is_over = true, .ended_us = time_us_};
  const Json shown = Json::parse(*job()->job_json());
  EXPECT_EQ(phases(shown), (std::vector<std::string>{"0 lost"}));
  EXPECT_EQ(shown["state"], "failed");
}

// A node's launcher that gyre run has started again begins the file anew.
TEST_F(PageStoredJob, a_file_that_was_cut_is_read_from_its_beginning) {
  start(writer(1, 0), 0);
  for (int step = 1; step < 50; ++step) log(writer(1, 0), 0, step);
  const auto stored = job();
  EXPECT_EQ(Json::parse(*stored->chart_json("loss", {}))["lines"][0]["count"], 49);
  const fs::path path = folder_ / "gyre-1-0.metrics";
  writers_.clear();
  metrics::FileWriter again(folder_ / "new");
  start(again, 0);
  log(again, 0, 7);
  {
    // As the service does, which has the file open by its name alone.
    std::ifstream in(folder_ / "new", std::ios::binary);
    std::ofstream(path, std::ios::binary | std::ios::trunc) << in.rdbuf();
  }
  const Deadline deadline = Deadline::after(std::chrono::seconds(20));
  const auto count = [&] { return Json::parse(*stored->chart_json("loss", {}))["lines"][0]["count"].get<int>(); };
  while (count() != 1 && !deadline.passed()) std::this_thread::sleep_for(std::chrono::milliseconds(10));  // NOLINT
  EXPECT_EQ(count(), 1);
}

// Files of jobs may hold anything, and a server must not grow by them.
TEST_F(PageStoredJob, what_a_job_makes_up_is_limited) {
  auto& file = writer(1, 0);
  start(file, 0);
  start(file, StoredJob::kMostRanks);
  file.event("{\"kind\": 99}");
  file.event("nothing");
  file.note("ranks", std::string(30'000, 'x'));
  file.note("anything", "else");
  for (int rank = 0; rank < 2 * StoredJob::kMostRanks; ++rank) log(file, rank, 1);
  std::ofstream(folder_ / "gyre-1-1.metrics") << "no metrics at all";
  std::ofstream(folder_ / "gyre-01-2.metrics") << "no metrics at all";
  const auto stored = job();
  EXPECT_EQ(phases(Json::parse(*stored->job_json())), (std::vector<std::string>{"0 running"}));
  const Json index = Json::parse(*stored->index_json());
  EXPECT_EQ(index["charts"], (Json{{{"name", "loss"}, {"lines", StoredJob::kMostRanks}}}));
  EXPECT_EQ(index["runs"][0]["notes"], (Json{{"ranks", std::string(1'000, 'x')}}));
  EXPECT_THROW(stored->open_log(0), net::http::HttpError);
}

// The log of a rank is its own where the job's nodes have started it, else that of all.
TEST_F(PageStoredJob, a_rank_has_the_log_that_there_is) {
  for (const int rank : {0, 1}) start(writer(1, 0), rank);
  std::ofstream(folder_ / "stdout.txt") << "all";
  std::ofstream(folder_ / "stdout-1.txt") << "rank 1";
  const auto stored = job();
  static_cast<void>(stored->job_json());
  EXPECT_EQ(stored->log_sizes(), (std::map<int, std::uint64_t>{{0, 3}, {1, 6}}));
  EXPECT_EQ(stored->log_names(), (std::map<int, std::string>{{0, "stdout.txt"}, {1, "stdout-1.txt"}}));
}

// Each rank writes its own, next to the logs; an attempt that was given up has its own as well.
TEST_F(PageStoredJob, timelines_of_the_last_attempt_are_followed) {
  const auto trace = [&](int attempt, int rank, std::int64_t start_us) {
    const fs::path file = folder_ / file_of_rank(metrics::name_of_timelines(attempt), rank);
    return TraceFile(file, fmt::format(R"({{"ph":"M","name":"process_name","pid":0,"args":{{"name":"gyre",)"
                                       R"("start_time_since_epoch_in_micros":{}}}}})",
                                       start_us));
  };
  start(writer(1, 0), 0);
  const auto stored = job();
  EXPECT_EQ(stored->versions().timeline, 0U);
  EXPECT_THROW(stored->timeline_json({}, {}), net::http::HttpError);
  trace(1, 0, 1'000'000);
  const auto first = trace(2, 0, 2'000'000);
  TraceFile second = trace(2, 1, 2'000'000);
  const auto other = job();
  const std::uint64_t before = other->versions().timeline;
  EXPECT_GT(before, 0U);
  EXPECT_FALSE(other->versions().is_over);
  second.append(R"(,
{"ph":"X","pid":1,"tid":0,"ts":10,"dur":90,"name":"WAIT_FOR_DATA"})");
  facts_ = {.is_over = true, .ended_us = time_us_};
  const Deadline deadline = Deadline::after(std::chrono::seconds(20));
  while (!other->versions().is_over && !deadline.passed()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));  // NOLINT
  }
  EXPECT_TRUE(other->versions().is_over) << "once all of it was read";
  EXPECT_GT(other->versions().timeline, before);
  const Json all = Json::parse(other->timeline_json({}, {}));
  ASSERT_EQ(all["ranks"].size(), 2U);
  EXPECT_EQ(all["from"], 2'000'000);
  EXPECT_EQ(all["ranks"][1]["spans"]["wait_for_data"], (Json{2'000'010, 90, 90, 0, 1}));
}

// However many jobs somebody looks at, a server keeps a few.
TEST(PageOpenJobs, those_that_were_asked_for_last_stay_open) {
  OpenJobs jobs;
  int made = 0;
  const fs::path none = fs::temp_directory_path();
  const StoredJobFiles::Facts facts;
  const auto make = [&] {
    ++made;
    return std::make_shared<StoredJob>("j", std::make_unique<Folder>(none, facts));
  };
  const auto first = jobs.find("0", make);
  for (std::size_t i = 1; i < OpenJobs::kMost; ++i) jobs.find(std::to_string(i), make);
  EXPECT_EQ(jobs.find("0", make), first);
  jobs.find("one more", make);
  EXPECT_EQ(jobs.find("0", make), first);
  EXPECT_EQ(made, static_cast<int>(OpenJobs::kMost) + 1);
  jobs.find("1", make);  // The one that nobody had asked for since.
  EXPECT_EQ(made, static_cast<int>(OpenJobs::kMost) + 2);
}

}  // namespace
}  // namespace gyre::page
