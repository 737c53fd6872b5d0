// The parts of the job service pass their own tests; together they must run jobs, each once, whatever ends in between.
#include "gyre/jobs/service/service.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "gyre/jobs/catalog/catalog.h"
#include "gyre/jobs/service/service_test_support.h"

namespace gyre::jobs::service {
namespace {

TEST_F(JobServiceTest, a_job_succeeds_and_its_files_are_where_batch_ai_put_them) {
  make_cluster(2);
  const std::string output =
      R"(, "outputDirectories": [{"id": "MODEL", "pathPrefix": "$AZ_BATCHAI_MOUNT_ROOT/share"}])";
  const resources::Job queued =
      submit("first", job_of(2, "echo hello; echo model > $AZ_BATCHAI_OUTPUT_MODEL/m.txt", output));
  EXPECT_EQ(queued.execution_state, ExecutionState::kQueued);
  const resources::Job job = ended("first");
  EXPECT_EQ(job.execution_state, ExecutionState::kSucceeded) << events_of("first");
  EXPECT_EQ(job.execution_info.exit_code, 0);
  EXPECT_TRUE(job.execution_info.errors.empty());
  const fs::path place =
      share_ / "00000000-0000-0000-0000-000000000000/gyre/workspaces/w/experiments/e/jobs/first" / job.uuid;
  EXPECT_EQ(content_of(place / "stdouterr/stdout.txt"), "hello\n");
  EXPECT_EQ(content_of(place / "outputs/m.txt"), "model\n");
  EXPECT_EQ(log_of("first"), "hello\n");
  EXPECT_TRUE(service_->files_are_complete(named("first")));
}

TEST_F(JobServiceTest, a_cluster_with_a_mount_that_is_not_there_is_not_made) {
  spec::ClusterSpec cluster = cluster_of(spec::ManualScale{1});
  cluster.gyre.mounts["data"] = (share_ / "missing").string();
  try {
    service_->create_cluster(kCluster, cluster);
    FAIL() << "it was made";
  } catch (const resources::ServiceError& error) {
    EXPECT_EQ(error.name(), "UnusablePath");
    EXPECT_THAT(error.what(), HasSubstr("mount 'data': there is no directory " + (share_ / "missing").string()));
  }
  fs::create_directory(share_ / "missing");
  EXPECT_TRUE(service_->create_cluster(kCluster, cluster).is_new);
  // Asked for again it is the one there is, whatever has happened meanwhile.
  fs::remove(share_ / "missing");
  EXPECT_FALSE(service_->create_cluster(kCluster, cluster).is_new);
}

TEST_F(JobServiceTest, a_job_that_fails_has_its_exit_code_and_one_error) {
  make_cluster(1);
  submit("bad", job_of(1, "exit 7"));
  const resources::Job job = ended("bad");
  EXPECT_EQ(job.execution_state, ExecutionState::kFailed);
  EXPECT_EQ(job.execution_info.exit_code, 7);
  ASSERT_EQ(job.execution_info.errors.size(), 1U);
  EXPECT_EQ(job.execution_info.errors.front().code, "JobFailed");
  EXPECT_EQ(service_->why(named("bad")).reason, "JobFailed");
}

// Its events said that all nodes were prepared and that the job ran.
TEST_F(JobServiceTest, a_job_whose_preparation_fails_is_never_said_to_run) {
  make_cluster(1);
  const std::string preparation = R"(, "jobPreparation": {"commandLine": "exit 3"})";
  submit("unprepared", job_of(1, "true", preparation));
  EXPECT_EQ(ended("unprepared").execution_info.errors.front().code, "JobPreparationFailed");
  EXPECT_THAT(events_of("unprepared"), Not(HasSubstr("all nodes are prepared")));
  submit("prepared", job_of(1, "true"));
  ended("prepared");
  EXPECT_THAT(events_of("prepared"), HasSubstr("all nodes are prepared; the job runs"));
}

// No resizing would have given it its nodes, for which it waited.
TEST_F(JobServiceTest, a_job_of_more_nodes_than_the_cluster_can_ever_have_is_refused) {
  make_cluster(1);
  try {
    submit("vast", job_of(251, "true"));
    FAIL() << "it was accepted";
  } catch (const resources::ServiceError& error) {
    EXPECT_THAT(error.what(), HasSubstr("it asks for 251 nodes, of which the cluster can have at most 250"));
  }
}

// "The job runs", it said, while a host could not be reached.
TEST_F(JobServiceTest, why_says_of_a_job_that_has_not_begun_what_its_nodes_have_said) {
  make_cluster(1);
  const std::string preparation = R"(, "jobPreparation": {"commandLine": "sleep 1000; apt-get install x"})";
  submit("slow", job_of(1, "true", preparation));
  EXPECT_TRUE(wait_until([&] { return events_of("slow").find("apt-get") != std::string::npos; }));
  EXPECT_THAT(service_->why(named("slow")).message,
              testing::AllOf(HasSubstr("in its first attempt, and has not begun: "), HasSubstr("apt-get")));
  service_->terminate(named("slow"));
  ended("slow");
}

// It was accepted, waited for its nodes, and failed on them.
TEST_F(JobServiceTest, a_job_with_a_container_is_refused_where_the_cluster_cannot_start_it) {
  spec::ClusterSpec without = cluster_of(spec::ManualScale{1});
  without.gyre.containers = spec::Containers::kRefused;
  service_->create_cluster({"w", "c"}, without);
  const std::string container = R"(, "containerSettings": {"imageSourceRegistry": {"image": "tensorflow:1.6"}})";
  const spec::JobSpec job = job_of(1, "true", container);
  try {
    submit("contained", job);
    FAIL() << "it was accepted";
  } catch (const resources::ServiceError& error) {
    EXPECT_EQ(error.name(), "ContainersNotSupported");
    EXPECT_THAT(error.what(), HasSubstr("cluster 'c': it has containerSettings (image tensorflow:1.6)"));
    EXPECT_THAT(error.what(), HasSubstr("--containers-on-host"));
  }
  EXPECT_TRUE(service_->jobs("w", {}, {}).items.empty());
  spec::ClusterSpec on_host = cluster_of(spec::ManualScale{1});
  on_host.gyre.containers = spec::Containers::kHost;
  service_->create_cluster({"w", "host"}, on_host);
  service_->submit(named("contained"), {job, {"w", "host"}, ""});
  EXPECT_EQ(ended("contained").execution_state, ExecutionState::kSucceeded) << events_of("contained");
}

TEST_F(JobServiceTest, jobs_wait_for_nodes_and_say_so_and_run_in_the_order_of_submission) {
  make_cluster(1);
  submit("one", job_of(1,
                       "while [ ! -e $AZ_BATCHAI_MOUNT_ROOT/share/go ]; do sleep 0.05; done; echo 1 >> "
                       "$AZ_BATCHAI_MOUNT_ROOT/share/order"));
  submit("two", job_of(1, "echo 2 >> $AZ_BATCHAI_MOUNT_ROOT/share/order"));
  submit("three", job_of(1, "echo 3 >> $AZ_BATCHAI_MOUNT_ROOT/share/order"));
  EXPECT_TRUE(wait_until([&] { return state_of("one") == ExecutionState::kRunning; }));
  EXPECT_EQ(service_->why(named("two")).reason, "nodes");
  EXPECT_EQ(state_of("two"), ExecutionState::kQueued);
  std::ofstream(share_ / "go") << "\n";
  ended("three");
  EXPECT_EQ(content_of(share_ / "order"), "1\n2\n3\n");
}

TEST_F(JobServiceTest, a_terminated_job_fails_whatever_it_was_doing_and_a_finished_one_stays_as_it_is) {
  make_cluster(1);
  submit("done", job_of(1, "true"));
  ended("done");
  service_->terminate(named("done"));
  EXPECT_EQ(state_of("done"), ExecutionState::kSucceeded);

  submit("running", job_of(1, "sleep 600"));
  submit("queued", job_of(1, "true"));
  EXPECT_TRUE(wait_until([&] { return state_of("running") == ExecutionState::kRunning; }));
  EXPECT_EQ(service_->terminate(named("queued")).execution_state, ExecutionState::kFailed);
  service_->terminate(named("running"));
  EXPECT_EQ(ended("running").execution_state, ExecutionState::kFailed);
}

// The request may come between the plan of an attempt and its handing over to the nodes.
TEST_F(JobServiceTest, a_job_that_is_ended_at_any_moment_of_its_start_ends) {
  make_cluster(1);
  for (int i = 0; i < 200; ++i) {
    const std::string name = fmt::format("job-{}", i);
    submit(name, job_of(1, "sleep 600"));
    std::this_thread::sleep_for(std::chrono::microseconds(i % 40 * 50));
    service_->terminate(named(name));
    ASSERT_EQ(ended(name).execution_state, ExecutionState::kFailed) << i;
  }
}

TEST_F(JobServiceTest, a_service_that_starts_again_takes_over_what_runs_and_starts_nothing_twice) {
  make_cluster(1);
  submit("long", job_of(1,
                        "echo started >> $AZ_BATCHAI_MOUNT_ROOT/share/starts; while [ ! -e "
                        "$AZ_BATCHAI_MOUNT_ROOT/share/go ]; do sleep 0.05; done; echo done"));
  submit("next", job_of(1, "echo next"));
  EXPECT_TRUE(wait_until([&] { return content_of(share_ / "starts") == "started\n"; }));
  restart();
  EXPECT_EQ(state_of("long"), ExecutionState::kRunning);
  std::ofstream(share_ / "go") << "\n";
  EXPECT_EQ(ended("long").execution_state, ExecutionState::kSucceeded) << events_of("long");
  EXPECT_EQ(log_of("long"), "done\n");
  EXPECT_EQ(content_of(share_ / "starts"), "started\n");
  const std::string events = events_of("long");
  const std::size_t first = events.find("all nodes are prepared");
  ASSERT_NE(first, std::string::npos) << events;
  EXPECT_EQ(events.find("all nodes are prepared", first + 1), std::string::npos) << events;
  EXPECT_EQ(ended("next").execution_state, ExecutionState::kSucceeded);
}

TEST_F(JobServiceTest, a_job_whose_node_is_lost_runs_again_on_another_one) {
  make_cluster(1);
  submit("moved", job_of(1,
                         "if [ -e $AZ_BATCHAI_MOUNT_ROOT/share/first ]; then echo again; "
                         "else touch $AZ_BATCHAI_MOUNT_ROOT/share/first; sleep 600; fi"));
  EXPECT_TRUE(wait_until([&] { return fs::exists(share_ / "first"); }));
  const std::string node = service_->nodes(kCluster).front().name;
  const fs::path root = options_.folder / "nodes" / node;
  ::kill(program_of(root), SIGSTOP);  // It hangs: it neither renews its lease nor ends.
  const resources::Job job = ended("moved");
  EXPECT_EQ(job.execution_state, ExecutionState::kSucceeded) << events_of("moved");
  EXPECT_EQ(job.attempts, 2);
  EXPECT_NE(service_->nodes(kCluster).front().name, node);
  EXPECT_THAT(events_of("moved"), HasSubstr("nodeLost"));
}

TEST_F(JobServiceTest, a_secret_reaches_the_job_and_nobody_else) {
  make_cluster(1);
  submit("secret",
         job_of(1, "echo -n $TOKEN | md5sum", R"(, "secrets": [{"name": "TOKEN", "value": "hunter2-hunter2"}])"));
  EXPECT_EQ(ended("secret").execution_state, ExecutionState::kSucceeded) << events_of("secret");
  EXPECT_THAT(log_of("secret"), HasSubstr("cd0b9b64e661a1de0f3baf754b9e49c3"));
  EXPECT_THAT(events_of("secret"), Not(HasSubstr("hunter2")));
  service_.reset();
  EXPECT_THAT(content_of(options_.folder / "catalog.db"), Not(HasSubstr("hunter2-hunter2")));
  start();
}

TEST_F(JobServiceTest, what_cannot_be_asked_for_is_refused_by_name) {
  make_cluster(1);
  const spec::JobSpec job = job_of(1, "true");
  EXPECT_TRUE(service_->submit(named("same"), {job, kCluster, ""}).is_new);
  EXPECT_FALSE(service_->submit(named("same"), {job, kCluster, ""}).is_new);
  const auto refusal = [&](const auto& call) -> std::string {
    try {
      call();
    } catch (const resources::ServiceError& error) {
      return error.name();
    }
    return "nothing was refused";
  };
  EXPECT_EQ(refusal([&] { submit("same", job_of(1, "false")); }), "JobExists");
  EXPECT_EQ(refusal([&] { service_->submit(named("x"), {job, {"w", "none"}, ""}); }), "ClusterNotFound");
  EXPECT_EQ(refusal([&] { service_->submit({"w", "none", "x"}, {job, kCluster, ""}); }), "ExperimentNotFound");
  EXPECT_EQ(refusal([&] { service_->scale_cluster(kCluster, spec::ManualScale{1'000}); }), "NodeCountTooLarge");
  ended("same");
  submit("busy", job_of(1, "sleep 600"));
  EXPECT_EQ(refusal([&] { service_->delete_cluster(kCluster); }), "ClusterInUse");
  EXPECT_EQ(refusal([&] { service_->delete_experiment({"w", "e"}); }), "ExperimentInUse");
  service_->delete_job(named("busy"));
  EXPECT_TRUE(wait_until([&] { return refusal([&] { service_->job(named("busy")); }) == "JobNotFound"; }));
  service_->delete_cluster(kCluster);
  EXPECT_TRUE(wait_until([&] { return refusal([&] { service_->cluster(kCluster); }) == "ClusterNotFound"; }));
}

// Nobody else can reach them, and they would fill the disk.
TEST_F(JobServiceTest, logs_that_nodes_have_sent_outlive_the_nodes_and_go_with_the_job) {
  make_cluster(1);
  spec::JobSpec job = job_of(1, "echo kept");
  job.std_out_err_path_prefix = "$AZ_BATCHAI_JOB_TEMP_DIR";
  submit("kept", job);
  ended("kept");
  service_->scale_cluster(kCluster, spec::ManualScale{0});
  EXPECT_TRUE(wait_until([&] { return service_->nodes(kCluster).empty(); }));
  EXPECT_EQ(log_of("kept"), "kept\n");
  const auto logs = [&] {
    const auto all = fs::recursive_directory_iterator(options_.folder / "logs");
    return std::ranges::count_if(all, [](const auto& entry) { return entry.path().filename() == "stdout.txt"; });
  };
  EXPECT_EQ(logs(), 1);
  service_->delete_job(named("kept"));
  EXPECT_TRUE(wait_until([&] { return logs() == 0; }));
}

// A cluster is a tool, its jobs are results: they are looked at long after it is gone.
TEST_F(JobServiceTest, a_deleted_cluster_leaves_the_records_and_files_of_its_jobs) {
  make_cluster(1);
  submit("kept", job_of(1, "echo kept"));
  ended("kept");
  service_->delete_cluster(kCluster);
  const auto is_gone = [&] {
    try {
      service_->cluster(kCluster);
      return false;
    } catch (const resources::ServiceError& error) {
      return error.name() == "ClusterNotFound";
    }
  };
  EXPECT_TRUE(wait_until(is_gone));
  EXPECT_TRUE(service_->clusters("w", {}).items.empty());
  restart();
  EXPECT_EQ(state_of("kept"), ExecutionState::kSucceeded);
  EXPECT_EQ(service_->jobs("w", {}, {}).items.size(), 1U);
  EXPECT_EQ(log_of("kept"), "kept\n");
  make_cluster(1);  // The name is free again.
  submit("new", job_of(1, "true"));
  ended("new");
  service_->delete_cluster(kCluster);
  EXPECT_TRUE(wait_until(is_gone));
  service_->delete_workspace("w");
  EXPECT_TRUE(service_->workspaces({"", true}, {}).items.empty());
}

TEST_F(JobServiceTest, a_workspaces_jobs_hold_no_more_cores_than_its_quota) {
  make_cluster(2);
  const std::string wait = "while [ ! -e $AZ_BATCHAI_MOUNT_ROOT/share/go ]; do sleep 0.05; done";
  submit("first", job_of(1, wait));
  EXPECT_TRUE(wait_until([&] { return state_of("first") == ExecutionState::kRunning; }));
  const std::int64_t cores = service_->usages("w").front().current_value;
  EXPECT_GT(cores, 0);
  service_->set_quotas("w", {.cores = cores});
  EXPECT_EQ(service_->usages("w").front().limit, cores);
  submit("second", job_of(1, "true"));
  submit("large", job_of(2, "true"));
  EXPECT_EQ(service_->why(named("second")).reason, "quota");
  EXPECT_THAT(service_->why(named("second")).message, HasSubstr("workspace 'w' may use"));
  EXPECT_EQ(service_->why(named("large")).reason, "quotaTooSmall");
  EXPECT_EQ(state_of("second"), ExecutionState::kQueued);
  std::ofstream(share_ / "go") << "\n";
  EXPECT_EQ(ended("second").execution_state, ExecutionState::kSucceeded);
  EXPECT_EQ(state_of("large"), ExecutionState::kQueued);
  service_->set_quotas("w", {});
  EXPECT_EQ(ended("large").execution_state, ExecutionState::kSucceeded);
  EXPECT_EQ(service_->usages("w").front().current_value, 0);
}

// With hundreds of followers an event is the business of those who follow its job.
TEST_F(JobServiceTest, an_event_wakes_those_who_watch_its_job_its_cluster_or_its_workspace) {
  make_cluster(1);
  submit("mine", job_of(1, "true"));
  ended("mine");
  service_->create_workspace({"", true}, {"other", ""});
  std::atomic<int> other_job{0};
  std::atomic<int> other_workspace{0};
  std::atomic<int> workspace{0};
  std::atomic<int> cluster{0};
  std::vector<std::unique_ptr<JobService::Watch>> watches;
  watches.push_back(service_->watch({"w", "", "e", "mine"}, [&] { ++other_job; }));
  watches.push_back(service_->watch({"other", "", "", ""}, [&] { ++other_workspace; }));
  watches.push_back(service_->watch({"w", "", "", ""}, [&] { ++workspace; }));
  watches.push_back(service_->watch({"w", "c", "", ""}, [&] { ++cluster; }));
  submit("theirs", job_of(1, "true"));
  ended("theirs");
  EXPECT_TRUE(wait_until([&] { return workspace >= 2 && cluster >= 2; }));
  EXPECT_EQ(other_job, 0);
  EXPECT_EQ(other_workspace, 0);
}

// initialNodeCount was read and forgotten.
TEST_F(JobServiceTest, a_new_cluster_that_scales_by_itself_begins_with_its_initial_nodes_until_a_job_has_come) {
  service_->create_cluster(kCluster, cluster_of(spec::AutoScale{0, 3, 2}));
  EXPECT_TRUE(wait_until([&] { return service_->cluster(kCluster).current_node_count == 2; }));
  submit("j", job_of(1, "true"));
  EXPECT_EQ(ended("j").execution_state, ExecutionState::kSucceeded);
  EXPECT_TRUE(wait_until([&] { return service_->cluster(kCluster).current_node_count == 0; }));
}

// They stayed for ever.
TEST_F(JobServiceTest, the_folder_of_a_node_that_was_released_goes_and_the_logs_that_a_job_left_there_stay) {
  make_cluster(2);
  spec::JobSpec job = job_of(1, "echo kept");
  job.std_out_err_path_prefix = "$AZ_BATCHAI_JOB_TEMP_DIR";
  submit("here", job);
  submit("elsewhere", job_of(2, "true"));
  ended("here");
  ended("elsewhere");
  service_->scale_cluster(kCluster, spec::ManualScale{0, spec::NodeDeallocationOption::kTerminate});
  const fs::path nodes = options_.folder / "nodes";
  EXPECT_TRUE(wait_until([&] { return std::distance(fs::directory_iterator(nodes), {}) == 1; }));
  const fs::path left = fs::directory_iterator(nodes)->path();
  EXPECT_TRUE(wait_until([&] { return std::distance(fs::directory_iterator(left), {}) == 1; }));
  EXPECT_EQ(log_of("here"), "kept\n");
}

// The whole service did not start.
TEST_F(JobServiceTest, a_cluster_whose_shared_folder_is_missing_is_unusable_until_it_is_back_and_others_work) {
  const fs::path shared = folder_.path() / "shared";
  fs::create_directories(shared);
  spec::ClusterSpec slurm = cluster_of(spec::ManualScale{1});
  slurm.gyre.driver = "slurm";
  slurm.gyre.driver_options = {{"shared_folder", shared.string()}, {"address", "127.0.0.1"}};
  service_->create_cluster({"w", "far"}, slurm);
  make_cluster(1);
  service_.reset();
  fs::rename(shared, folder_.path() / "away");
  start();
  ASSERT_EQ(service_->cluster({"w", "far"}).errors.size(), 1U);
  EXPECT_THAT(service_->cluster({"w", "far"}).errors[0].message, HasSubstr(shared.string() + " is not a directory"));
  service_->submit(named("waits"), {job_of(1, "true"), {"w", "far"}, ""});
  EXPECT_THAT(service_->why(named("waits")).message, HasSubstr("its cluster cannot be used: "));
  EXPECT_THAT(service_->nodes({"w", "far"}), testing::SizeIs(1));
  submit("here", job_of(1, "true"));
  EXPECT_EQ(ended("here").execution_state, ExecutionState::kSucceeded);
  service_->terminate(named("waits"));
  fs::rename(folder_.path() / "away", shared);
  EXPECT_TRUE(wait_until([&] { return service_->cluster({"w", "far"}).errors.empty(); }));
}

// The catalog had let the node go, and nobody would ever have looked for its folder again.
TEST_F(JobServiceTest, what_a_killed_service_had_released_is_gone_after_the_next_start) {
  make_cluster(2);
  submit("first", job_of(2, "true"));
  ASSERT_EQ(ended("first").execution_state, ExecutionState::kSucceeded) << events_of("first");
  service_.reset();
  std::vector<fs::path> nodes;
  for (const auto& entry : fs::directory_iterator(options_.folder / "nodes")) nodes.push_back(entry.path());
  ASSERT_EQ(nodes.size(), 2U);
  {
    // As far as a release comes that is killed before it is written down, and one killed before the node program has
    // ended.
    catalog::Catalog catalog = catalog::Catalog::open(options_.folder / "catalog.db");
    for (const fs::path& node : nodes) {
      const auto known = catalog.nodes().find(node.filename().string());
      catalog.nodes().change(known->id, resources::NodeState::kLeaving, {"scale", ""});
      if (node == nodes.front()) catalog.nodes().remove(known->id, {"scale", ""});
    }
  }
  start();
  for (const fs::path& node : nodes) EXPECT_TRUE(wait_until([&] { return !fs::exists(node); })) << node;
  submit("second", job_of(2, "true"));
  EXPECT_EQ(ended("second").execution_state, ExecutionState::kSucceeded) << events_of("second");
}

}  // namespace
}  // namespace gyre::jobs::service
