// A trace of millions of lines must become what a browser draws at once, and still say where the time went.
#include "gyre/page/rank_timeline.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "gyre/base/trace_file.h"

namespace gyre::page {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

class PageTimeline : public testing::Test {
 protected:
  PageTimeline() : folder_(fs::path(testing::TempDir()) / ("timeline_" + std::to_string(::getpid()))) {
    fs::create_directories(folder_);
  }
  ~PageTimeline() override { fs::remove_all(folder_); }

  TraceFile trace(int rank, std::int64_t start_us) {
    TraceFile file(
        folder_ / ("t-" + std::to_string(rank)),
        R"({"name":"process_name","ph":"M","pid":0,"args":{"name":"gyre","start_time_since_epoch_in_micros":)" +
            std::to_string(start_us) + "}}");
    file.append(
        ",\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":1,\"ts\":0,\"args\":{\"name\":\"gyre: open lane\"}}");
    return file;
  }
  static std::string phase(const std::string& name, int at, int length, const std::string& detail) {
    return ",\n{\"ph\":\"X\",\"pid\":1,\"tid\":0,\"ts\":" + std::to_string(at) + ",\"dur\":" + std::to_string(length) +
           ",\"name\":\"" + name + "\",\"args\":{\"detail\":\"" + detail + "\"}}";
  }

  fs::path folder_;
  JobTimeline job_{folder_ / "t-{rank}"};
};

// The parts of a collective are known as sums alone: they are drawn as shares of its time.
TEST_F(PageTimeline, a_trace_is_followed_while_it_grows) {
  TraceFile file = trace(0, 1'000'000);
  job_.add_rank(0);
  EXPECT_TRUE(job_.read());
  EXPECT_FALSE(job_.read());
  file.append(phase("COLLECTIVE", 10, 100, "wait 40 copy 0 reduce 10 send 5"));
  file.append(phase("WAIT_FOR_EXCHANGE", 60, 50, "gradients"));
  EXPECT_TRUE(job_.read());
  const Json all = Json::parse(job_.json({}, {}));
  EXPECT_EQ(all.at("from"), 1'000'000);
  EXPECT_EQ(all.at("to"), 1'000'110);
  const Json& spans = all.at("ranks").at(0).at("spans");
  EXPECT_EQ(spans.at("exchange"), Json({1'000'010, 100, 100, 2, 1}));
  EXPECT_EQ(spans.at("wait_for_ranks"), Json({1'000'010, 100, 40, 2, 1}));
  EXPECT_EQ(spans.at("wait_for_exchange"), Json({1'000'060, 50, 50, 1, 1}));
  EXPECT_FALSE(spans.contains("copy"));
  EXPECT_EQ(all.at("labels"), Json({"gradients", "open lane"}));
}

TEST_F(PageTimeline, clocks_of_hosts_are_brought_together) {
  TraceFile first = trace(0, 5'000'000);
  first.append(phase("CLOCK", 0, 0, "host n1 id a"));
  TraceFile second = trace(1, 7'000'000);
  second.append(phase("CLOCK", 0, 0, "host n2 id b ahead -1999000"));
  TraceFile third = trace(2, 7'000'000);  // Has not measured, on the host of one that has.
  third.append(phase("CLOCK", 0, 0, "host n2 id b"));
  job_.find_ranks();
  job_.read();
  const Json all = Json::parse(job_.json({}, {}));
  EXPECT_EQ(all.at("ranks").at(0).at("begin"), 5'000'000);
  EXPECT_EQ(all.at("ranks").at(1).at("begin"), 5'001'000);
  EXPECT_EQ(all.at("ranks").at(2).at("begin"), 5'001'000);
  EXPECT_EQ(all.at("ranks").at(1).at("host"), "n2");
}

// What was joined says how much of it was covered, and nothing of that is lost.
TEST(PageSpans, are_joined_where_there_are_many) {
  Spans spans(1'000);
  for (std::int64_t i = 0; i < 100'000; ++i) spans.add({i * 10, i * 10 + 4, 4});
  EXPECT_LE(spans.all().size(), 1'000U);
  const auto sum = [](const auto& all, auto member) {
    std::int64_t total = 0;
    for (const Span& span : all) total += span.*member;
    return total;
  };
  EXPECT_EQ(sum(spans.all(), &Span::covered_us), 400'000);
  EXPECT_EQ(sum(spans.all(), &Span::count), 100'000);
  const auto few = spans.within(0, 1'000'000, 10);
  EXPECT_LE(few.size(), 10U);
  EXPECT_EQ(sum(few, &Span::covered_us), 400'000);
}

TEST(PageSpans, that_overlap_count_once) {
  Spans spans(10);
  spans.add({0, 100, 100});
  spans.add({50, 120, 70});
  spans.add({200, 210, 10});
  ASSERT_EQ(spans.all().size(), 2U);
  EXPECT_EQ(spans.all().front().covered_us, 120);
  EXPECT_EQ(spans.within(150, 205, 10).size(), 1U);
}

TEST_F(PageTimeline, a_file_that_was_begun_again_or_is_not_ours_does_no_harm) {
  {
    trace(0, 1'000'000).append(phase("COLLECTIVE", 10, 100, "wait x"));
  }
  job_.add_rank(0);
  job_.read();
  {
    trace(0, 2'000'000).append(phase("COLLECTIVE", 10, 100, ""));
  }
  job_.read();
  EXPECT_EQ(Json::parse(job_.json({}, {})).at("ranks").at(0).at("begin"), 2'000'000);
  std::ofstream(folder_ / "t-0", std::ios::app) << "{\"ph\": 7}\n{nonsense\n{\"ph\":\"X\",\"pid\":\"a\"}\n";
  job_.read();
  EXPECT_EQ(Json::parse(job_.json({}, {})).at("ranks").size(), 1U);
}

// The files of a server's jobs are read by the server: numbers that cannot be times would be sums that no number is.
TEST_F(PageTimeline, numbers_that_are_no_times_are_left_out) {
  TraceFile file = trace(0, 1'000'000);
  for (const char* time : {"9223372036854775807", "-9223372036854775808", "1e300", "18446744073709551615", "0.5"}) {
    file.append(fmt::format(",\n{{\"ph\":\"X\",\"pid\":1,\"ts\":{0},\"dur\":{0},\"name\":\"WAIT_FOR_DATA\"}}", time));
    file.append(fmt::format(",\n{{\"ph\":\"X\",\"pid\":{0},\"ts\":1,\"dur\":2,\"name\":\"WAIT_FOR_DATA\"}}", time));
  }
  file.append(phase("COLLECTIVE", 10, 100, std::string(5'000, 'x')));
  file.append(phase("WAIT_FOR_EXCHANGE", 10, 100, std::string(5'000, 'x')));
  job_.add_rank(0);
  job_.read();
  const Json all = Json::parse(job_.json({}, {}));
  EXPECT_EQ(all.at("to"), 1'000'110);
  EXPECT_FALSE(all.at("ranks").at(0).at("spans").contains("wait_for_data"));
  EXPECT_EQ(all.at("labels").at(0).get<std::string>().size(), 300U);
}

}  // namespace
}  // namespace gyre::page
