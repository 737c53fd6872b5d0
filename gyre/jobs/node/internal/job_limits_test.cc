// A limit that is not enforced, and a process that the kernel has killed because of one, are told in words of the job
// file.

#include "gyre/jobs/node/internal/job_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gyre/jobs/resources/job_end.h"

namespace gyre::jobs::node::internal {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

orders::WorkOrder an_order(spec::Toolkit toolkit) {
  orders::WorkOrder order;
  order.nodes = {{.id = "n-1", .address = "127.0.0.2"}};
  order.job.toolkit = std::move(toolkit);
  order.job.memory_per_node = "64mb";
  return order;
}

resources::ResourceError failure(std::map<std::string, std::string> details) {
  return {resources::error_code::kJobFailed, "it failed", std::move(details)};
}

TEST(job_limits, come_of_the_job_file) {
  spec::JobSpec job;
  job.memory_per_node = "2gb";
  job.cpus_per_node = 3;
  EXPECT_EQ(limits_of(job).memory_bytes, std::uint64_t{2} << 30);
  EXPECT_EQ(limits_of(job).cores, 3);
}

TEST(job_limits, those_that_an_engine_has_set_already_are_enforced) {
  const LimitsWanted wanted{.cores = 2, .memory_bytes = std::uint64_t{64} << 20};
  EXPECT_THAT(not_enforced(wanted, 2, std::uint64_t{32} << 20, "why"), IsEmpty());
  EXPECT_THAT(not_enforced(wanted, 8, std::nullopt, "why"),
              ElementsAre("cpusPerNode, 2, is not enforced: why", "memoryPerNode, 64 MB, is not enforced: why"));
  EXPECT_THAT(not_enforced({}, std::nullopt, std::nullopt, "why"), IsEmpty());
}

TEST(job_limits, a_kill_names_the_rank_and_the_limit) {
  const auto words = [](spec::Toolkit toolkit, std::map<std::string, std::string> details, std::int64_t kills) {
    return words_about_kills(an_order(std::move(toolkit)), failure(std::move(details)), kills);
  };
  EXPECT_THAT(words(spec::GyreSettings{}, {{"rank", "1"}, {"signal", "SIGKILL"}}, 1),
              HasSubstr("the kernel killed rank 1 because the job reached its memory limit on node n-1, memoryPerNode "
                        "64mb; ask for more"));
  EXPECT_THAT(words(spec::CustomToolkitSettings{}, {{"rank", "0"}, {"signal", "SIGKILL"}}, 1),
              HasSubstr("the kernel killed it because"));
  EXPECT_THAT(words(spec::GyreSettings{}, {{"rank", "1"}}, 2), HasSubstr("the kernel killed 2 of its processes"));
}

// An error that is not the job's is tried again, and its exit code says that the job is not at fault.
TEST(job_limits, a_job_whose_memory_cost_gyre_s_own_processes_has_failed_by_itself) {
  const auto blamed = [](const char* code, std::map<std::string, std::string> details) {
    orders::ExitRecord record;
    record.exit_code = resources::kNotTheJobsExitCode;
    record.error = resources::ResourceError{code, "the gyre launch was killed", std::move(details)};
    blame_kills(an_order(spec::GyreSettings{}), record, 3);
    EXPECT_THAT(record.error->message, HasSubstr("was killed; the kernel killed 3 of its processes because"));
    EXPECT_EQ(record.error->code == resources::error_code::kJobFailed, record.exit_code == 137);
    EXPECT_EQ(record.error->details.contains("reason"),
              record.exit_code != 137 && code == resources::error_code::kInternal);
    return record.exit_code;
  };
  EXPECT_EQ(blamed(resources::error_code::kInternal, {{"node", "n-1"}}), 137);
  EXPECT_EQ(blamed(resources::error_code::kInternal, {{"reason", orders::kNotStarted}}), 137);
  EXPECT_EQ(blamed(resources::error_code::kInternal, {{"reason", orders::kNoRoom}}), resources::kNotTheJobsExitCode);
  EXPECT_EQ(blamed(resources::error_code::kUnusablePath, {}), resources::kNotTheJobsExitCode);
}

}  // namespace
}  // namespace gyre::jobs::node::internal
