// `gyre job run` and the verbs for a server's jobs say the same of a job.
#include "gyre/jobs/client/job_status.h"

#include <gtest/gtest.h>

namespace gyre::jobs::client {
namespace {

using resources::ExecutionState;

std::string text_of(const JobGlance& glance) {
  std::string text;
  for (const cli::BlockLine& line : block_of(glance)) text += line.text + "\n";
  return text;
}

TEST(JobStatus, a_job_that_waits_shows_for_how_long) {
  resources::Job job{.name = {"w", "e", "train"}, .creation_time = 1'000'000};
  EXPECT_EQ(text_of(glance_of(job, "e/train", 131'000'000)), "e/train  queued  1 node  2m10s\n");
}

TEST(JobStatus, a_job_that_runs_shows_its_time_attempt_nodes_and_news) {
  resources::Job job{.creation_time = 0, .execution_state = ExecutionState::kRunning, .attempts = 2};
  job.spec.node_count = 2;
  job.execution_info.start_time = 60'000'000;
  JobGlance glance = glance_of(job, "train", 65'000'000);
  glance.node_names = {"n0", "n1"};
  glance.detail = "job running";
  EXPECT_EQ(text_of(glance), "train  running  2 nodes  5s  attempt 2\n  on n0, n1\n  job running\n");
}

TEST(JobStatus, events_become_sentences) {
  EXPECT_EQ(sentence_about({.subject = "job", .to = "running"}), "job running");
  EXPECT_EQ(sentence_about({.subject = "job", .to = "queued", .message = "a node was lost"}),
            "job queued: a node was lost");
  EXPECT_EQ(sentence_about({.subject = "job", .message = "a remark"}), "job: a remark");
  EXPECT_EQ(sentence_about({.subject = "job", .from = "running"}), std::nullopt);
}

TEST(JobStatus, a_job_that_waits_for_its_turn_needs_no_change) {
  EXPECT_FALSE(must_change_something({.reason = "waitingForNodes"}));
  EXPECT_TRUE(must_change_something({.reason = "clusterTooSmall"}));
}

}  // namespace
}  // namespace gyre::jobs::client
