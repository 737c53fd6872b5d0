// A failure that is not the job's own should cost nobody a look at the queue in the morning; and what is tried again by
// hand must neither run beside itself nor fail at once for what is known already.
#include "gyre/jobs/service/internal/records.h"
#include "gyre/jobs/service/service_test_support.h"

namespace gyre::jobs::service {
namespace {

class RetriesTest : public JobServiceTest {
 protected:
  static spec::JobSpec program(const std::string& line, const std::string& settings) {
    const std::string text = fmt::format(
        R"({{"properties": {{"nodeCount": 1, "stdOutErrPathPrefix": "$AZ_BATCHAI_MOUNT_ROOT/share",
             "gyreSettings": {{"program": ["sh", "-c", "{}"]{}}}}}}})",
        line, settings);
    return spec::job_or_throw(spec::parse_job(text), "the test's job");
  }
  std::string refusal(const std::string& name) {
    try {
      service_->retry(named(name));
    } catch (const resources::ServiceError& error) {
      return error.name();
    }
    return "it was accepted";
  }
  /// The processes that hold the ranks.
  int kill_launchers() const {
    int killed = 0;
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator("/proc", ignored)) {
      const std::string words = content_of(entry.path() / "cmdline");
      if (words.find((options_.folder / "nodes").string()) == std::string::npos) continue;
      if (words.find("ranks.sock.json") == std::string::npos) continue;
      ::kill(std::stoi(entry.path().filename()), SIGKILL);
      ++killed;
    }
    return killed;
  }
  /// No attempt can be started.
  void break_starts() {
    fs::remove_all(options_.folder / "attempts");
    std::ofstream(options_.folder / "attempts") << "a file where a folder should be";
  }
};

TEST_F(RetriesTest, a_job_that_has_failed_is_queued_again_by_hand_and_has_a_new_attempt) {
  make_cluster(1);
  submit("job", job_of(1, "test -e $AZ_BATCHAI_MOUNT_ROOT/share/ready || exit 3"));
  EXPECT_EQ(ended("job").execution_info.exit_code, 3);
  std::ofstream(share_ / "ready") << "yes";
  const resources::Job queued = service_->retry(named("job"));
  EXPECT_EQ(queued.execution_state, ExecutionState::kQueued);
  EXPECT_TRUE(queued.execution_info.errors.empty());
  EXPECT_EQ(queued.execution_info.end_time, std::nullopt);
  const resources::Job job = ended("job");
  EXPECT_EQ(job.execution_state, ExecutionState::kSucceeded) << events_of("job");
  EXPECT_EQ(job.attempts, 2);
  EXPECT_THAT(events_of("job"), HasSubstr("job failed>queued request queued again by a user"));
  EXPECT_EQ(refusal("job"), "JobNotFailed");
}

TEST_F(RetriesTest, what_would_fail_at_once_or_run_beside_itself_is_not_retried) {
  make_cluster(1);
  submit("running", job_of(1, "sleep 1000"));
  EXPECT_EQ(refusal("running"), "JobNotFailed");
  service_->terminate(named("running"));
  ended("running");
  submit("secret", job_of(1, "exit 1", R"(, "secrets": [{"name": "KEY", "value": "x"}])"));
  ended("secret");
  EXPECT_EQ(refusal("secret"), "SecretsDeleted");
  service_->delete_cluster(kCluster);
  EXPECT_TRUE(wait_until([&] { return service_->clusters("w", {}).items.empty(); }));
  EXPECT_EQ(refusal("running"), "ClusterNotFound");
}

TEST_F(RetriesTest, an_attempt_that_cannot_be_started_is_made_again_as_often_as_the_job_says) {
  make_cluster(1);
  break_starts();
  submit("often", program("true", R"(, "retries": 2)"));
  submit("once", program("true", ""));
  EXPECT_EQ(ended("often").attempts, 3);
  EXPECT_EQ(service_->job(named("often")).execution_info.errors.front().code, "InternalError");
  EXPECT_THAT(events_of("often"), HasSubstr("attempt planned>ended retry filesystem error"));
  EXPECT_EQ(ended("once").attempts, 1);
  // By hand it has all of them again.
  service_->retry(named("often"));
  EXPECT_EQ(ended("often").attempts, 6);
  fs::remove(options_.folder / "attempts");
  service_->retry(named("often"));
  EXPECT_EQ(ended("often").execution_state, ExecutionState::kSucceeded);
}

TEST_F(RetriesTest, a_job_whose_launcher_was_killed_runs_again_when_nothing_of_it_is_left) {
  make_cluster(1);
  const std::string line =
      "exec 9>> $AZ_BATCHAI_MOUNT_ROOT/share/lock; flock -n 9 || exit 9; cd $AZ_BATCHAI_MOUNT_ROOT/share; "
      "[ -e ran ] && exit 0; touch ran; exec sleep 1000";
  submit("job", program(line, R"(, "retries": 1)"));
  EXPECT_TRUE(wait_until([&] { return fs::exists(share_ / "ran"); }));
  EXPECT_GE(kill_launchers(), 1);
  EXPECT_EQ(ended("job").execution_state, ExecutionState::kSucceeded) << events_of("job");
  EXPECT_EQ(service_->job(named("job")).attempts, 2);
  EXPECT_THAT(events_of("job"), HasSubstr("job running>queued retry"));
}

// It failed with exit code 143, although it had done nothing wrong.
TEST_F(RetriesTest, a_job_whose_server_was_away_for_longer_than_the_lease_is_queued_again) {
  make_cluster(1);
  const std::string line = "cd $AZ_BATCHAI_MOUNT_ROOT/share; [ -e ran ] && exit 0; touch ran; exec sleep 1000";
  submit("job", job_of(1, line));
  EXPECT_TRUE(wait_until([&] { return fs::exists(share_ / "ran"); }));
  service_.reset();
  EXPECT_TRUE(wait_until([&] {
    const auto node = fs::directory_iterator(options_.folder / "nodes")->path();
    return !fs::is_empty(node::NodeFolders(node).records());  // The node program has ended it.
  }));
  start();
  EXPECT_EQ(ended("job").execution_state, ExecutionState::kSucceeded) << events_of("job");
  EXPECT_EQ(service_->job(named("job")).attempts, 2);
  EXPECT_THAT(events_of("job"), HasSubstr("1 of 19 after losses"));
}

TEST_F(RetriesTest, pauses_between_attempts_double_up_to_a_limit_and_can_be_seen) {
  using std::chrono::milliseconds;
  EXPECT_EQ(retry_pause(0, milliseconds(1'000), milliseconds(300'000)), milliseconds(1'000));
  EXPECT_EQ(retry_pause(3, milliseconds(1'000), milliseconds(300'000)), milliseconds(8'000));
  EXPECT_EQ(retry_pause(1'000, milliseconds(1'000), milliseconds(300'000)), milliseconds(300'000));
  service_.reset();
  options_.retry_pause = options_.longest_retry_pause = std::chrono::hours(1);
  start();
  make_cluster(1);
  break_starts();
  submit("job", program("true", R"(, "retries": 2)"));
  EXPECT_TRUE(wait_until([&] { return service_->job(named("job")).retry_time.has_value(); }));
  restart();  // It still waits.
  EXPECT_EQ(service_->why(named("job")).reason, "retryPause");
  EXPECT_EQ(service_->job(named("job")).attempts, 1);
}

TEST_F(RetriesTest, the_jobs_own_failure_is_not_retried) {
  make_cluster(1);
  submit("own", program("exit 5", R"(, "retries": 9)"));
  EXPECT_EQ(ended("own").execution_info.exit_code, 5);
  EXPECT_EQ(service_->job(named("own")).attempts, 1);
}

TEST_F(RetriesTest, a_job_without_retries_fails_with_its_node) {
  make_cluster(1);
  submit("job", program("touch $AZ_BATCHAI_MOUNT_ROOT/share/runs; sleep 1000", R"(, "retries": 0)"));
  EXPECT_TRUE(wait_until([&] { return fs::exists(share_ / "runs"); }));
  for (const auto& node : fs::directory_iterator(options_.folder / "nodes")) ::kill(program_of(node.path()), SIGSTOP);
  const resources::Job job = ended("job");
  EXPECT_EQ(job.execution_state, ExecutionState::kFailed);
  EXPECT_EQ(job.attempts, 1);
}

}  // namespace
}  // namespace gyre::jobs::service
