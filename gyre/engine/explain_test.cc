// `gyre explain` tells users where their step's time goes; what it tells must be what was measured and counted.
#include "gyre/engine/explain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "gyre/base/bytes.h"
#include "gyre/base/file.h"
#include "gyre/engine/runtime.h"

namespace gyre::engine {
namespace {

using ::testing::Each;
using ::testing::Gt;

std::filesystem::path new_file(const std::string& name) {
  return std::filesystem::path(::testing::TempDir()) / ("explain-" + name + "-" + std::to_string(::getpid()) + ".json");
}

nlohmann::json take_report(const std::filesystem::path& path) {
  const Bytes text = read_file(path, std::uint64_t{1} << 20);
  std::filesystem::remove(path);
  return nlohmann::json::parse(as_text(text));
}

RuntimeOptions writing_to(const std::filesystem::path& path) {
  RuntimeOptions options;
  options.log_level = "off";
  options.explain_file = path;
  return options;
}

/// One step of a plan with a small and a large tensor.
void make_a_step(Runtime& runtime) {
  const auto plan = runtime.engine().make_plan(
      {{"small", DataType::kFloat32, {8}}, {"large", DataType::kFloat32, {1 << 21}}}, {.name = "weights"});
  plan->mark_ready(0);
  plan->mark_ready(1);
  plan->finish_step();
}

TEST(Explain, all_ranks_measure_the_same_machine) {
  std::vector<double> memory(4);
  std::vector<std::int64_t> latency_ns(4);
  run_ranks(4, [&](Runtime& runtime) {
    const MachineRates rates = measure_machine(runtime.group());
    memory[static_cast<std::size_t>(runtime.rank())] = rates.memory_bytes_per_second;
    latency_ns[static_cast<std::size_t>(runtime.rank())] = rates.latency.count();
    EXPECT_EQ(rates.link_bytes_per_second, 0);
  });
  EXPECT_GT(memory[0], 0);
  EXPECT_GT(latency_ns[0], 0);
  EXPECT_THAT(memory, Each(memory[0]));
  EXPECT_THAT(latency_ns, Each(latency_ns[0]));
}

TEST(Explain, links_are_measured_where_there_are_several_hosts) {
  run_ranks(3, [&](Runtime& runtime) { EXPECT_THAT(measure_machine(runtime.group()).link_bytes_per_second, Gt(0)); },
            {}, {"a", "b", "b"});
}

TEST(Explain, rank_0_writes_the_report_when_it_leaves) {
  const auto path = new_file("leaves");
  run_ranks(2, [](Runtime& runtime) { make_a_step(runtime); }, writing_to(path));
  const nlohmann::json report = take_report(path);
  EXPECT_EQ(report["ranks"], 2);
  EXPECT_EQ(report["hosts"], 1);
  EXPECT_GT(report["rates"]["memory_bytes_per_second"], 0);
  // The plan is gone by then; what it counted is not.
  ASSERT_EQ(report["plans"].size(), 1);
  const nlohmann::json& plan = report["plans"][0];
  EXPECT_EQ(plan["name"], "weights");
  EXPECT_EQ(plan["steps"], 1);
  std::size_t bytes = 0;
  std::size_t tensors = 0;
  for (const nlohmann::json& bucket : plan["buckets"]) {
    bytes += bucket["bytes"].get<std::size_t>();
    tensors += bucket["tensors"].get<std::size_t>();
    EXPECT_FALSE(bucket["reason"].get<std::string>().empty());
    EXPECT_GT(bucket["piece_bytes"], 0);
    EXPECT_LE(bucket["start_us"], bucket["end_us"]);
  }
  EXPECT_EQ(tensors, 2);
  EXPECT_GE(bytes, 4 * (8 + (1 << 21)));
  EXPECT_GT(plan["total"]["exchange_us"], 0);
  EXPECT_EQ(report["lanes"].back()["lane"], "plan 'weights'");
}

TEST(Explain, a_file_that_cannot_be_written_does_not_fail_the_job) {
  run_ranks(2, [](Runtime& runtime) { make_a_step(runtime); }, writing_to("/no/such/folder/report.json"));
}

TEST(Explain, no_file_is_written_unless_it_is_asked_for) {
  const auto path = new_file("absent");
  run_ranks(2, [](Runtime& runtime) { make_a_step(runtime); });
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace gyre::engine
