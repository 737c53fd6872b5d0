// A failure that is not the job's own should cost nobody a look at the queue in the morning; and what is tried again by
// hand must neither run beside itself nor fail at once for what is known already.
#include "gyre/jobs/service/internal/records.h"
#include "gyre/jobs/service/service_test_support.h"

namespace gyre::jobs::service {
namespace {

class RetriesTest : public JobServiceTest {
 protected:
  std::string refusal(const std::string& name) {
    try {
      service_->retry(named(name));
    } catch (const api::ServiceError& error) {
      return error.name();
    }
    return "it was accepted";
  }
};

TEST_F(RetriesTest, a_job_that_has_failed_is_queued_again_by_hand_and_has_a_new_attempt) {
  make_cluster(1);
  submit("job", job_of(1, "test -e $AZ_BATCHAI_MOUNT_ROOT/share/ready || exit 3"));
  EXPECT_EQ(ended("job").execution_info.exit_code, 3);
  std::ofstream(share_ / "ready") << "yes";
  const api::Job queued = service_->retry(named("job"));
  EXPECT_EQ(queued.execution_state, ExecutionState::kQueued);
  EXPECT_TRUE(queued.execution_info.errors.empty());
  EXPECT_EQ(queued.execution_info.end_time, std::nullopt);
  const api::Job job = ended("job");
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

}  // namespace
}  // namespace gyre::jobs::service
