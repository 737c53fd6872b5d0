// What a client makes of an answer is what the service had put into it.
#include "gyre/jobs/resources/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gyre/base/error.h"

namespace gyre::jobs::resources {
namespace {

TEST(ResourcesJson, a_job_is_read_as_it_was_written) {
  Job job{.name = {"vision", "nets", "train"}, .uuid = "u", .creation_time = 1'527'854'400'123'456};
  job.spec.cluster_id = "pool";
  job.spec.node_count = 4;
  job.execution_state = ExecutionState::kFailed;
  job.execution_info = {.start_time = job.creation_time + 5,
                        .end_time = job.creation_time + 1'000'000,
                        .exit_code = 7,
                        .errors = {{.code = "JobFailed", .message = "it failed", .details = {{"node", "n0"}}}}};
  job.attempts = 2;
  job.submitter = "ada";
  const Job read = job_from_json(to_json(job));
  EXPECT_EQ(id_of(read.name), "/workspaces/vision/experiments/nets/jobs/train");
  EXPECT_EQ(read.spec.cluster_id, "pool");
  EXPECT_EQ(read.spec.node_count, 4);
  EXPECT_EQ(read.creation_time, job.creation_time);
  EXPECT_EQ(read.execution_state, ExecutionState::kFailed);
  EXPECT_EQ(read.execution_info.start_time, job.execution_info.start_time);
  EXPECT_EQ(read.execution_info.end_time, job.execution_info.end_time);
  EXPECT_EQ(read.execution_info.exit_code, 7);
  EXPECT_EQ(read.execution_info.errors, job.execution_info.errors);
  EXPECT_EQ(read.attempts, 2);
  EXPECT_EQ(read.submitter, "ada");
  EXPECT_FALSE(read.retry_time);
}

TEST(ResourcesJson, an_event_is_read_as_it_was_written) {
  const Event event{.sequence = 9,
                    .time = 1'000'000,
                    .subject = "job",
                    .name = "train",
                    .attempt = 2,
                    .from = "queued",
                    .to = "running",
                    .reason = "started",
                    .message = "on 2 nodes"};
  const Event read = event_from_json(to_json(event));
  EXPECT_EQ(to_json(read), to_json(event));
}

TEST(ResourcesJson, times_are_read_with_and_without_fractions) {
  EXPECT_EQ(time_from_iso_8601("1970-01-01T00:00:01Z"), 1'000'000);
  EXPECT_EQ(time_from_iso_8601("1970-01-01T00:00:01.5Z"), 1'500'000);
  EXPECT_EQ(time_from_iso_8601(iso_8601_time(-1)), -1);
  EXPECT_FALSE(time_from_iso_8601("yesterday"));
}

TEST(ResourcesJson, an_answer_of_something_else_is_refused) {
  EXPECT_THROW(job_from_json({{"properties", 5}}), Error);
  EXPECT_THROW(job_from_json(nlohmann::json::array()), Error);
}

TEST(ResourcesJson, details_of_an_error_are_kept_as_text) {
  const ResourceError error{.code = "InternalError", .message = "lost", .details = {{"node", "n0"}}};
  EXPECT_EQ(details_from_text(details_text(error)), error.details);
  EXPECT_EQ(details_text({}), "");
  EXPECT_THAT(details_from_text(R"({"cores": 3})"), testing::ElementsAre(testing::Pair("cores", "3")));
  EXPECT_THAT(details_from_text("{damaged"), testing::IsEmpty());
}

}  // namespace
}  // namespace gyre::jobs::resources
