// Scripts decide by the exit code of `gyre job wait`, `job submit --follow` and `job run` whether to try a job again.
// `job run` ended with 255 where `job wait` ended with 125.
#include "gyre/jobs/resources/job_end.h"

#include <gtest/gtest.h>

namespace gyre::jobs::resources {
namespace {

Job failed(const char* code, std::optional<int> exit_code) {
  Job job{.name = {"w", "e", "train"}, .execution_state = ExecutionState::kFailed};
  job.execution_info = {.exit_code = exit_code, .errors = {{.code = code, .message = "it failed"}}};
  return job;
}

TEST(JobEnd, a_job_that_succeeded_ends_with_0) {
  EXPECT_EQ(exit_code_of({.execution_state = ExecutionState::kSucceeded}), 0);
}

TEST(JobEnd, a_jobs_own_failure_has_the_jobs_own_exit_code) {
  EXPECT_EQ(exit_code_of(failed(error_code::kJobFailed, 7)), 7);
  EXPECT_EQ(exit_code_of(failed(error_code::kPreparationFailed, 3)), 3);
  EXPECT_EQ(exit_code_of(failed(error_code::kJobFailed, kTerminatedExitCode)), 143);
}

TEST(JobEnd, a_failure_never_ends_with_0) {
  EXPECT_EQ(exit_code_of(failed(error_code::kJobFailed, std::nullopt)), 1);
  EXPECT_EQ(exit_code_of(failed(error_code::kJobFailed, 0)), 1);
  EXPECT_EQ(exit_code_of(failed(error_code::kJobFailed, 256)), 1);
}

TEST(JobEnd, a_failure_that_is_not_the_jobs_ends_with_125_whatever_its_record_says) {
  EXPECT_EQ(exit_code_of(failed(error_code::kInternal, 255)), kNotTheJobsExitCode);  // Of earlier versions.
  EXPECT_EQ(exit_code_of(failed(error_code::kUnusablePath, 125)), kNotTheJobsExitCode);
  EXPECT_EQ(exit_code_of(failed("CodeNotFound", std::nullopt)), kNotTheJobsExitCode);
}

TEST(JobEnd, the_sentence_has_all_that_is_known) {
  EXPECT_EQ(sentence_about_end(failed(error_code::kJobFailed, 7)),
            "job 'train' failed with exit code 7: JobFailed: it failed");
  EXPECT_EQ(sentence_about_end({.name = {"w", "e", "train"}, .execution_state = ExecutionState::kSucceeded}),
            "job 'train' succeeded");
}

}  // namespace
}  // namespace gyre::jobs::resources
