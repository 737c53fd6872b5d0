// A job's life as clients see it, and the promise that nothing is run twice: intent first, then the act, then its
// confirmation, each of which may come late and twice.
#include "gyre/jobs/catalog/jobs.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gyre/base/file.h"
#include "gyre/jobs/catalog/catalog_test_support.h"

namespace gyre::jobs::catalog {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

class JobsTest : public testing::Test {
 protected:
  std::vector<std::string> history(const Job& job) {
    std::vector<std::string> lines;
    for (const Event& event : catalog_.events().list({.job = job.id}).items) {
      lines.push_back(event.subject + " " + event.from + ">" + event.to);
    }
    return lines;
  }
  Attempt run(const Job& job, int number = 1) {
    const Attempt attempt = catalog_.attempts().plan(job.id, number, {scene_.nodes[0]}, kCause);
    catalog_.attempts().confirm_start(attempt.id, kCause);
    return attempt;
  }
  void clean(Id node) { catalog_.nodes().change(node, NodeState::kIdle, kCause); }

  TemporaryFolder folder_;
  TimeUs now_ = 1'000'000;
  Catalog catalog_ = Catalog::open(folder_.file(), {.now = [this] { return now_; }});
  Scene scene_{catalog_};
};

TEST_F(JobsTest, a_job_is_queued_runs_and_succeeds) {
  const Job job = scene_.submit("j");
  EXPECT_EQ(job.execution_state, ExecutionState::kQueued);
  const Attempt attempt = catalog_.attempts().plan(job.id, 1, scene_.nodes, kCause);
  EXPECT_EQ(attempt.id, job.uuid + "-1");
  EXPECT_THAT(attempt.nodes, SizeIs(2));
  EXPECT_EQ(scene_.state_of(job), ExecutionState::kQueued);
  EXPECT_EQ(scene_.state_of(scene_.nodes[0]), NodeState::kRunning);
  now_ = 2'000'000;
  catalog_.attempts().confirm_start(attempt.id, kCause);
  now_ = 5'000'000;
  catalog_.attempts().confirm_end(attempt.id, succeeded());
  const Job done = catalog_.jobs().get(job.id);
  EXPECT_EQ(done.execution_state, ExecutionState::kSucceeded);
  EXPECT_EQ(done.start, 2'000'000);
  EXPECT_EQ(done.end, 5'000'000);
  EXPECT_EQ(done.exit_code, 0);
  EXPECT_FALSE(done.error);
  EXPECT_EQ(scene_.state_of(scene_.nodes[1]), NodeState::kPreparing);
  EXPECT_THAT(history(job), ElementsAre("job >queued", "attempt >planned", "attempt planned>started",
                                        "job queued>running", "attempt started>ended", "job running>succeeded"));
}

TEST_F(JobsTest, a_failure_has_an_exit_code_and_exactly_one_error) {
  const Job job = scene_.submit("j");
  const Attempt attempt = run(job);
  EXPECT_THROW(catalog_.attempts().confirm_end(attempt.id, {.outcome = AttemptEnd::Outcome::kFailed}), Error);
  EXPECT_EQ(scene_.state_of(job), ExecutionState::kRunning);
  catalog_.attempts().confirm_end(attempt.id, failed(3));
  const Job done = catalog_.jobs().get(job.id);
  EXPECT_EQ(done.exit_code, 3);
  ASSERT_TRUE(done.error);
  EXPECT_EQ(done.error->code, "JobFailed");
}

TEST_F(JobsTest, a_requeued_job_runs_again_and_shows_its_latest_start) {
  const Job job = scene_.submit("j");
  const Attempt first = run(job);
  catalog_.attempts().plan_end(first.id, EndIntent::kRequeue, {"nodeLost", "node n0 was lost"});
  EXPECT_EQ(scene_.state_of(job), ExecutionState::kRunning);
  catalog_.attempts().confirm_end(first.id, requeued());
  EXPECT_EQ(scene_.state_of(job), ExecutionState::kQueued);
  clean(scene_.nodes[0]);
  now_ = 9'000'000;
  const Attempt second = run(job, 2);
  EXPECT_EQ(catalog_.jobs().get(job.id).start, 9'000'000);
  EXPECT_EQ(catalog_.jobs().get(job.id).attempts, 2);
  catalog_.attempts().confirm_end(second.id, succeeded());
  EXPECT_THAT(catalog_.attempts().list(job.id), SizeIs(2));
}

TEST_F(JobsTest, planning_the_same_attempt_again_changes_nothing) {
  const Job job = scene_.submit("j");
  const Attempt attempt = run(job);
  const Id latest = catalog_.events().latest();
  const Attempt again = catalog_.attempts().plan(job.id, 1, {scene_.nodes[1]}, kCause);
  EXPECT_EQ(again.state, AttemptState::kStarted);
  EXPECT_EQ(again.nodes[0].id, scene_.nodes[0]);
  catalog_.attempts().confirm_end(attempt.id, succeeded());
  EXPECT_EQ(catalog_.attempts().plan(job.id, 1, {scene_.nodes[1]}, kCause).state, AttemptState::kEnded);
  EXPECT_EQ(catalog_.events().latest(), latest + 3);  // The attempt, its node and the job have ended.
}

TEST_F(JobsTest, a_job_never_has_two_attempts_at_once) {
  const Job job = scene_.submit("j");
  catalog_.attempts().plan(job.id, 1, {scene_.nodes[0]}, kCause);
  const Error error = error_of([&] { catalog_.attempts().plan(job.id, 2, {scene_.nodes[1]}, kCause); });
  EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(scene_.state_of(scene_.nodes[1]), NodeState::kIdle);
}

TEST_F(JobsTest, a_node_is_given_to_one_attempt_and_a_refusal_takes_no_other_node) {
  run(scene_.submit("j"));
  const Job other = scene_.submit("k");
  EXPECT_THROW(catalog_.attempts().plan(other.id, 1, {scene_.nodes[1], scene_.nodes[0]}, kCause), Error);
  EXPECT_EQ(scene_.state_of(scene_.nodes[1]), NodeState::kIdle);
  EXPECT_EQ(catalog_.jobs().get(other.id).attempts, 0);
  EXPECT_THAT(catalog_.attempts().list(other.id), IsEmpty());
}

TEST_F(JobsTest, late_news_changes_nothing) {
  const Job job = scene_.submit("j");
  const Attempt attempt = run(job);
  catalog_.attempts().confirm_end(attempt.id, failed(1));
  const Id latest = catalog_.events().latest();
  catalog_.attempts().confirm_start(attempt.id, kCause);
  catalog_.attempts().plan_end(attempt.id, EndIntent::kTerminate, kCause);
  catalog_.attempts().confirm_end(attempt.id, succeeded());
  EXPECT_EQ(catalog_.events().latest(), latest);
  EXPECT_EQ(scene_.state_of(job), ExecutionState::kFailed);
}

TEST_F(JobsTest, an_end_may_be_known_before_the_start) {
  const Job job = scene_.submit("j");
  const Attempt attempt = catalog_.attempts().plan(job.id, 1, {scene_.nodes[0]}, kCause);
  catalog_.attempts().confirm_end(attempt.id, succeeded());
  EXPECT_EQ(scene_.state_of(job), ExecutionState::kSucceeded);
  EXPECT_THAT(history(job), ElementsAre("job >queued", "attempt >planned", "attempt planned>ended",
                                        "job queued>running", "job running>succeeded"));
}

TEST_F(JobsTest, terminating_a_queued_job_fails_it_at_once) {
  const Job job = scene_.submit("j");
  EXPECT_TRUE(catalog_.jobs().terminate(job.id, {"user", "terminated by ann"}));
  EXPECT_EQ(scene_.state_of(job), ExecutionState::kFailed);
  EXPECT_EQ(catalog_.jobs().get(job.id).error->message, "terminated by ann");
}

TEST_F(JobsTest, terminating_a_running_job_ends_its_attempt_first) {
  const Job job = scene_.submit("j");
  const Attempt attempt = run(job);
  EXPECT_TRUE(catalog_.jobs().terminate(job.id, kCause));
  EXPECT_EQ(scene_.state_of(job), ExecutionState::kTerminating);
  EXPECT_EQ(catalog_.attempts().get(attempt.id).end_intent, EndIntent::kTerminate);
  EXPECT_THROW(catalog_.attempts().confirm_end(attempt.id, requeued()), Error);
  catalog_.attempts().confirm_end(attempt.id, failed(137));
  EXPECT_EQ(scene_.state_of(job), ExecutionState::kFailed);
}

TEST_F(JobsTest, an_attempt_that_is_planned_is_ended_too_before_its_job_fails) {
  const Job job = scene_.submit("j");
  const Attempt attempt = catalog_.attempts().plan(job.id, 1, {scene_.nodes[0]}, kCause);
  catalog_.jobs().terminate(job.id, kCause);
  EXPECT_EQ(scene_.state_of(job), ExecutionState::kTerminating);
  catalog_.attempts().confirm_start(attempt.id, kCause);
  EXPECT_EQ(scene_.state_of(job), ExecutionState::kTerminating);
  catalog_.attempts().confirm_end(attempt.id, failed(143));
  EXPECT_EQ(scene_.state_of(job), ExecutionState::kFailed);
}

TEST_F(JobsTest, terminating_overrules_requeueing_and_not_the_other_way_round) {
  const Job job = scene_.submit("j");
  const Attempt attempt = run(job);
  catalog_.attempts().plan_end(attempt.id, EndIntent::kRequeue, kCause);
  catalog_.jobs().terminate(job.id, kCause);
  catalog_.attempts().plan_end(attempt.id, EndIntent::kRequeue, kCause);
  EXPECT_EQ(catalog_.attempts().get(attempt.id).end_intent, EndIntent::kTerminate);
}

TEST_F(JobsTest, terminating_a_finished_job_changes_nothing) {
  const Job job = scene_.submit("j");
  catalog_.attempts().confirm_end(run(job).id, succeeded());
  const Id latest = catalog_.events().latest();
  EXPECT_FALSE(catalog_.jobs().terminate(job.id, kCause));
  EXPECT_EQ(catalog_.events().latest(), latest);
}

TEST_F(JobsTest, a_deleted_job_is_gone_when_it_has_ended_and_its_events_stay) {
  const Job job = scene_.submit("j");
  const Attempt attempt = run(job);
  catalog_.jobs().start_deletion(job.id, kCause);
  EXPECT_THROW(catalog_.jobs().remove(job.id), Error);
  EXPECT_THAT(catalog_.unconfirmed().jobs, SizeIs(1));
  catalog_.attempts().confirm_end(attempt.id, failed(137));
  catalog_.jobs().remove(job.id);
  EXPECT_EQ(error_of([&] { catalog_.jobs().get(job.id); }).code(), ErrorCode::kNotFound);
  EXPECT_THAT(history(job), testing::Contains("jobProvisioning deleting>"));
  EXPECT_NE(scene_.submit("j").uuid, job.uuid);
}

TEST_F(JobsTest, a_lost_node_stays_lost_when_its_attempt_has_ended) {
  const Job job = scene_.submit("j");
  const Attempt attempt = catalog_.attempts().plan(job.id, 1, scene_.nodes, kCause);
  catalog_.nodes().change(scene_.nodes[0], NodeState::kLost, {"nodeLost", "no lease"});
  EXPECT_EQ(catalog_.nodes().get(scene_.nodes[0]).problem, "no lease");
  // It may still run ranks: nobody may have it before they are known to be gone.
  EXPECT_THROW(catalog_.nodes().change(scene_.nodes[0], NodeState::kPreparing, kCause), Error);
  EXPECT_THROW(catalog_.nodes().remove(scene_.nodes[0], kCause), Error);
  catalog_.attempts().confirm_end(attempt.id, requeued());
  EXPECT_EQ(scene_.state_of(scene_.nodes[0]), NodeState::kLost);
  EXPECT_EQ(scene_.state_of(scene_.nodes[1]), NodeState::kPreparing);
  catalog_.nodes().remove(scene_.nodes[0], kCause);
  EXPECT_EQ(catalog_.attempts().get(attempt.id).nodes[0].name, "n0");
}

TEST_F(JobsTest, what_was_intended_and_not_confirmed_can_be_asked_for) {
  const Attempt planned = catalog_.attempts().plan(scene_.submit("j").id, 1, {scene_.nodes[0]}, kCause);
  const Attempt ending = catalog_.attempts().plan(scene_.submit("k").id, 1, {scene_.nodes[1]}, kCause);
  catalog_.attempts().confirm_start(ending.id, kCause);
  EXPECT_THAT(catalog_.unconfirmed().attempts, ElementsAre(testing::Field(&Attempt::id, planned.id)));
  catalog_.attempts().plan_end(ending.id, EndIntent::kRequeue, kCause);
  catalog_.nodes().plan(scene_.cluster.id, "new", kCause);
  const Unconfirmed found = catalog_.unconfirmed();
  EXPECT_THAT(found.attempts, SizeIs(2));
  EXPECT_THAT(found.nodes, ElementsAre(testing::Field(&Node::name, "new")));
}

TEST_F(JobsTest, secrets_are_for_node_programs_alone_and_go_when_the_job_has_ended) {
  const std::string value = "opensesame-4711";
  const Job job = scene_.submit("j", {{"PASSWORD", value}});
  const Attempt attempt = run(job);
  EXPECT_EQ(catalog_.attempts().secrets(attempt.id)[0].value, value);
  catalog_.attempts().confirm_end(attempt.id, succeeded());
  EXPECT_THROW(catalog_.attempts().secrets(attempt.id), Error);
  EXPECT_THAT(catalog_.jobs().get(job.id).spec, Not(HasSubstr(value)));
  for (const Event& event : catalog_.events().list({}).items) EXPECT_THAT(event.message, Not(HasSubstr(value)));
  {
    const Catalog closed = std::move(catalog_);
  }
  EXPECT_THAT(std::string(as_text(read_file(folder_.file(), 1 << 24))), Not(HasSubstr(value)));
  EXPECT_FALSE(std::filesystem::exists(folder_.file().string() + "-wal"));
}

// SQLite's own way of shortening the log did nothing after Jobs::create(), whose queries had not come to their last
// rows: the log of 100,000 jobs was of 6 GB.
TEST_F(JobsTest, the_log_of_many_jobs_stays_short) {
  constexpr int kJobs = 100;
  constexpr std::size_t kSpecBytes = 500'000;
  const std::filesystem::path log = folder_.file().string() + "-wal";
  for (int i = 0; i < kJobs; ++i) {
    catalog_.jobs().create({.experiment = scene_.experiment.id,
                            .cluster = scene_.cluster.id,
                            .name = fmt::format("j{}", i),
                            .spec = std::string(kSpecBytes, 'x')});
  }
  EXPECT_LT(std::filesystem::file_size(log), kJobs * kSpecBytes / 2);
  EXPECT_GT(std::filesystem::file_size(folder_.file()), kJobs * kSpecBytes / 2);
}

TEST_F(JobsTest, many_changes_together_are_one) {
  EXPECT_THROW(catalog_.together([&] {
    scene_.submit("j");
    scene_.submit("j");  // The name is in use.
  }),
               Error);
  EXPECT_FALSE(catalog_.jobs().find(scene_.experiment.id, "j"));
  const Error error = error_of([&] {
    catalog_.together([&] {
      scene_.submit("k");
      error_of([&] { scene_.submit("k"); });
    });
  });
  EXPECT_THAT(error.what(), HasSubstr("a part of the change failed"));
  EXPECT_FALSE(catalog_.jobs().find(scene_.experiment.id, "k"));
}

// Where a job's files lie follows from its cluster, which its owner may have deleted long ago.
TEST_F(JobsTest, a_deleted_cluster_is_remembered_until_the_last_of_its_jobs_goes) {
  const Job job = scene_.submit("j");
  catalog_.jobs().terminate(job.id, kCause);
  for (const Id node : scene_.nodes) {
    catalog_.nodes().change(node, NodeState::kLeaving, kCause);
    catalog_.nodes().remove(node, kCause);
  }
  Clusters clusters = catalog_.clusters();
  clusters.change(scene_.cluster.id, ProvisioningState::kDeleting, kCause);
  clusters.remove(scene_.cluster.id);
  EXPECT_FALSE(clusters.find(scene_.workspace.id, "c"));
  EXPECT_TRUE(clusters.list(scene_.workspace.id).items.empty());
  EXPECT_TRUE(clusters.list_all().items.empty());
  EXPECT_TRUE(clusters.deleting().empty());
  EXPECT_EQ(clusters.get(scene_.cluster.id).name, "c");
  const Cluster next = clusters.create({.workspace = scene_.workspace.id, .name = "c", .spec = "{}", .scale = "{}"});
  EXPECT_NE(next.id, scene_.cluster.id);
  EXPECT_EQ(catalog_.jobs().get(job.id).cluster, scene_.cluster.id);
  catalog_.jobs().start_deletion(job.id, kCause);
  catalog_.jobs().remove(job.id);
  EXPECT_THROW(clusters.get(scene_.cluster.id), Error);
}

}  // namespace
}  // namespace gyre::jobs::catalog
