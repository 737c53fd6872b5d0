// Two jobs on one GPU run out of memory, or at half the speed, without knowing why: each job has GPUs of its own. Names
// in the service's CUDA_VISIBLE_DEVICES stand for GPUs.
#include "gyre/jobs/service/service_test_support.h"

namespace gyre::jobs::service {
namespace {

class GpuJobs : public JobServiceTest {
 protected:
  GpuJobs() {
    options_.environment["CUDA_VISIBLE_DEVICES"] = "GPU-a,GPU-b,GPU-c,GPU-d";
    restart();
  }

  /// Says what it sees, and runs until release().
  static spec::JobSpec seeing(std::optional<int> gpus, int nodes = 1) {
    spec::JobSpec job = job_of(nodes,
                               "echo $AZ_BATCHAI_NUM_GPUS: $CUDA_VISIBLE_DEVICES; "
                               "while [ ! -e $AZ_BATCHAI_MOUNT_ROOT/share/go ]; do sleep 0.02; done");
    job.gpus_per_node = gpus;
    return job;
  }
  void release() const { std::ofstream(share_ / "go") << "\n"; }
  bool prints(const std::string& job, const std::string& line) {
    return wait_until([&] { return log_of(job) == line + "\n"; });
  }
  bool waits(const std::string& job) {
    return wait_until([&] { return service_->why(named(job)).reason == "gpus"; });
  }
};

TEST_F(GpuJobs, jobs_at_once_see_different_gpus_also_after_a_restart_of_the_service) {
  make_cluster(2);
  submit("one", seeing(std::nullopt));
  EXPECT_TRUE(prints("one", "2: GPU-a,GPU-b"));
  restart();
  submit("two", seeing(std::nullopt));
  EXPECT_TRUE(prints("two", "2: GPU-c,GPU-d"));
  EXPECT_EQ(state_of("one"), ExecutionState::kRunning);
  EXPECT_THAT(events_of("two"), HasSubstr("its GPUs: GPU-c, GPU-d of node "));
  release();
  EXPECT_EQ(ended("one").execution_state, ExecutionState::kSucceeded);
  EXPECT_EQ(ended("two").execution_state, ExecutionState::kSucceeded);
}

TEST_F(GpuJobs, a_job_waits_for_gpus_that_another_one_has_and_says_so) {
  make_cluster(3);
  submit("large", seeing(3));
  EXPECT_TRUE(prints("large", "3: GPU-a,GPU-b,GPU-c"));
  submit("waits", seeing(2));
  EXPECT_TRUE(waits("waits"));
  restart();
  EXPECT_TRUE(waits("waits"));
  EXPECT_EQ(state_of("waits"), ExecutionState::kQueued);
  EXPECT_EQ(service_->why(named("waits")).message, "it has its nodes, and needs 2 GPUs; 1 of the machine's 4 is free");
  submit("without", seeing(0));
  EXPECT_TRUE(prints("without", "0:"));
  release();
  EXPECT_EQ(ended("waits").execution_state, ExecutionState::kSucceeded);
  EXPECT_EQ(log_of("waits"), "2: GPU-a,GPU-b\n");
  const std::string events = events_of("waits");
  EXPECT_THAT(events, HasSubstr("waitsForGpus it has its nodes, and waits: it needs 2 GPUs"));
  EXPECT_EQ(events.find("waitsForGpus"), events.rfind("waitsForGpus")) << events;
}

TEST_F(GpuJobs, a_job_that_waits_for_gpus_can_be_terminated) {
  make_cluster(2);
  submit("all", seeing(4));
  submit("waits", seeing(1));
  EXPECT_TRUE(waits("waits"));
  service_->terminate(named("waits"));
  EXPECT_EQ(ended("waits").execution_info.errors.front().message, "the job was terminated");
  EXPECT_TRUE(wait_until([&] { return service_->cluster(kCluster).node_state_counts.idle == 1; }));
  // As is one that a service before this one left waiting.
  submit("again", seeing(1));
  EXPECT_TRUE(waits("again"));
  restart();
  service_->terminate(named("again"));
  EXPECT_EQ(ended("again").execution_state, ExecutionState::kFailed);
  release();
  EXPECT_EQ(ended("all").execution_state, ExecutionState::kSucceeded);
}

TEST_F(GpuJobs, a_job_that_asks_for_more_than_the_machine_has_is_refused) {
  make_cluster(2);
  EXPECT_TRUE(wait_until([&] { return service_->nodes(kCluster).size() == 2; }));
  EXPECT_EQ(service_->nodes(kCluster)[0].gpus, 2);
  try {
    submit("too-large", seeing(3, 2));
    FAIL() << "it was accepted";
  } catch (const resources::ServiceError& error) {
    EXPECT_EQ(error.name(), "NotEnoughGpus");
    EXPECT_THAT(error.what(), HasSubstr("cluster 'c': it asks for 3 GPUs on each of 2 nodes (gpusPerNode), and"));
    EXPECT_THAT(error.what(), HasSubstr("has 4 GPUs"));
  }
  EXPECT_TRUE(service_->jobs("w", {}, {}).items.empty());
}

}  // namespace
}  // namespace gyre::jobs::service
