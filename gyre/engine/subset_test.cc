// Process sets: a runtime over some of the ranks must do all that a whole one does, whatever the other ranks and sets
// do meanwhile, and its end must not be theirs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "gyre/base/bytes.h"
#include "gyre/base/file.h"
#include "gyre/engine/runtime.h"

namespace gyre::engine {
namespace {

using testing::HasSubstr;

std::span<std::byte> bytes_of(std::vector<float>& values) { return std::as_writable_bytes(std::span(values)); }

Request allreduce(const std::string& name, std::vector<float>& values) {
  Request request;
  request.name = name;
  request.signature = {.kind = OperationKind::kAllreduce,
                       .type = DataType::kFloat32,
                       .shape = {static_cast<std::int64_t>(values.size())}};
  request.input = bytes_of(values);
  request.output = bytes_of(values);
  return request;
}

float sum_over(Runtime& runtime, const std::string& name, float value) {
  std::vector<float> values(1000, value);
  runtime.engine().run(allreduce(name, values));
  return values[999];
}

class SubsetTest : public testing::TestWithParam<std::vector<std::string>> {};

TEST_P(SubsetTest, overlapping_sets_work_at_the_same_time_as_the_whole) {
  const auto body = [](Runtime& runtime) {
    const auto rank = static_cast<float>(runtime.rank());
    std::unique_ptr<Runtime> low;
    std::unique_ptr<Runtime> high;
    if (runtime.rank() <= 2) low = runtime.subset({2, 0, 1}, 1);
    if (runtime.rank() >= 1) high = runtime.subset({1, 2, 3}, 2);
    std::vector<float> whole(5000, rank);
    const Handle later = runtime.engine().submit(allreduce("x", whole));
    for (int round = 0; round < 20; ++round) {
      // The names are the same in all sets.
      if (low) {
        EXPECT_EQ(sum_over(*low, "x", rank), 3.0F);
      }
      if (high) {
        EXPECT_EQ(sum_over(*high, "x", rank), 6.0F);
      }
    }
    later.wait();
    EXPECT_EQ(whole[4999], 6.0F);
    if (low) {
      EXPECT_EQ(low->rank(), (runtime.rank() + 1) % 3);
    }
  };
  run_ranks(4, body, {}, GetParam());
}

TEST_P(SubsetTest, a_set_is_traced_under_its_name_where_rank_0_takes_part) {
  const auto path = std::filesystem::temp_directory_path() / ("gyre_subset_" + std::to_string(::getpid()) + ".json");
  const auto body = [&](Runtime& runtime) {
    std::unique_ptr<Runtime> set;
    if (runtime.rank() <= 1) set = runtime.subset({1, 0}, 1, "first");
    if (runtime.rank() >= 2) set = runtime.subset({2, 3}, 2);
    if (runtime.rank() == 0) {
      EXPECT_THROW(set->engine().start_timeline(path, false), Error);
    }
    runtime.engine().start_timeline(path, false);
    sum_over(*set, "x", 1.0F);
    set->shutdown();
    sum_over(runtime, "x", 1.0F);  // The end of a set ends nothing here.
    runtime.engine().stop_timeline();
  };
  run_ranks(4, body, {}, GetParam());
  std::map<std::string, int> phases_of;
  std::map<int, std::string> names;
  for (const auto& event : nlohmann::json::parse(as_text(read_file(path, 1 << 24)))) {
    if (event.value("name", "") == "process_name") names[event.at("pid")] = event.at("args").at("name");
    if (event.at("ph") == "B") ++phases_of[names.at(event.at("pid"))];
  }
  std::filesystem::remove(path);
  EXPECT_THAT(phases_of, testing::UnorderedElementsAre(testing::Pair("first: x", testing::Ge(2)),
                                                       testing::Pair("x", testing::Ge(2))));
}

TEST_P(SubsetTest, plans_work_in_a_set) {
  const auto body = [](Runtime& runtime) {
    if (runtime.rank() == 1) return;
    const auto set = runtime.subset({0, 2, 3}, 9);
    const auto plan = set->engine().make_plan({{"a", DataType::kFloat32, {300}}}, {.name = "p"});
    for (int step = 1; step <= 3; ++step) {
      const auto place = plan->tensor(0);
      auto* values = reinterpret_cast<float*>(place.data());
      std::fill(values, values + 300, static_cast<float>(3 * runtime.rank() * step));
      plan->mark_ready(0);
      plan->finish_step();
      EXPECT_EQ(values[299], static_cast<float>(5 * step));
    }
  };
  run_ranks(4, body, {}, GetParam());
}

TEST_P(SubsetTest, the_end_of_a_set_fails_what_waits_in_it_and_nothing_else) {
  const auto body = [](Runtime& runtime) {
    const auto set = runtime.subset({0, 1, 2}, 3);
    sum_over(*set, "before", 1.0F);
    if (runtime.rank() == 0) {
      set->shutdown();
    } else {
      std::vector<float> values(10);
      const Handle handle = set->engine().submit(allreduce("never", values));
      try {
        handle.wait();
        ADD_FAILURE() << "rank 0 took no part";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kPeerLeft) << error.what();
        EXPECT_THAT(error.what(), HasSubstr("rank 0"));
      }
    }
    EXPECT_EQ(sum_over(runtime, "after", 1.0F), 3.0F);
    const auto next = runtime.subset({0, 1, 2}, 4);
    EXPECT_EQ(sum_over(*next, "after", 2.0F), 6.0F);
  };
  run_ranks(3, body, {},
            {GetParam().begin(), GetParam().begin() + std::min<std::ptrdiff_t>(3, std::ssize(GetParam()))});
}

INSTANTIATE_TEST_SUITE_P(Hosts, SubsetTest,
                         testing::Values(std::vector<std::string>{}, std::vector<std::string>{"a", "b", "a", "b"}),
                         [](const auto& information) { return information.param.empty() ? "one" : "two"; });

}  // namespace
}  // namespace gyre::engine
