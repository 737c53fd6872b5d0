// The page shows the timelines of all ranks below each other, so each rank writes one, by clocks that are comparable.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gyre/engine/runtime.h"

namespace gyre::engine {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class TimelineOfRanks : public testing::Test {
 protected:
  TimelineOfRanks() : folder_(fs::path(testing::TempDir()) / ("timelines_" + std::to_string(::getpid()))) {
    fs::create_directories(folder_);
    options_.engine.timeline = folder_ / "rank-{rank}.json";
  }
  ~TimelineOfRanks() override { fs::remove_all(folder_); }

  /// The details of the phases of this name.
  std::vector<std::string> details_of(int rank, const std::string& name) const {
    std::vector<std::string> details;
    for (const auto& event :
         nlohmann::json::parse(std::ifstream(folder_ / ("rank-" + std::to_string(rank) + ".json")))) {
      if (event.value("name", "") == name) details.push_back(event.at("args").at("detail"));
    }
    return details;
  }

  fs::path folder_;
  RuntimeOptions options_;
};

void sum_once(Runtime& runtime) {
  std::vector<float> values(100'000, 1);
  Request request;
  request.name = "x";
  request.signature = {.kind = OperationKind::kAllreduce, .type = DataType::kFloat32, .shape = {100'000}};
  request.input = request.output = std::as_writable_bytes(std::span(values));
  runtime.engine().run(request);
}

TEST_F(TimelineOfRanks, each_says_what_its_collectives_and_its_program_did) {
  run_ranks(2, sum_once, options_);
  for (const int rank : {0, 1}) {
    ASSERT_EQ(details_of(rank, "COLLECTIVE").size(), 1U);
    EXPECT_THAT(details_of(rank, "COLLECTIVE").front(), testing::MatchesRegex("wait .* copy .* reduce .* send .*"));
    EXPECT_THAT(details_of(rank, "WAIT_FOR_EXCHANGE"), testing::ElementsAre("x"));
  }
}

// A job of the job server asks for them; where a node has no place for one, the job is more important.
TEST_F(TimelineOfRanks, a_job_servers_are_written_where_they_can_be) {
  const JobTimeline order{.path = std::exchange(options_.engine.timeline, {}), .most_bytes = 1'000'000};
  options_.engine.job_timeline = order;
  run_ranks(2, sum_once, options_);
  for (const int rank : {0, 1}) EXPECT_EQ(details_of(rank, "COLLECTIVE").size(), 1U);
  options_.engine.job_timeline->path = folder_ / "none" / "rank-{rank}.json";
  run_ranks(2, sum_once, options_);
  EXPECT_FALSE(fs::exists(folder_ / "none"));
}

// Both "hosts" have this machine's clock.
TEST_F(TimelineOfRanks, one_rank_of_each_other_host_measures_its_clock) {
  run_ranks(4, sum_once, options_, {"a", "a", "b", "b"});
  EXPECT_THAT(details_of(0, "CLOCK").front(), HasSubstr(" id a"));
  EXPECT_THAT(details_of(3, "CLOCK").front(), testing::EndsWith(" id b"));
  const std::string measured = details_of(2, "CLOCK").front();
  const std::string words = " id b ahead ";
  ASSERT_THAT(measured, HasSubstr(words));
  EXPECT_LT(std::abs(std::stol(measured.substr(measured.find(words) + words.size()))), 1'000'000) << measured;
}

}  // namespace
}  // namespace gyre::engine
