// The parts of the job service pass their own tests; together they must run jobs, each once, whatever ends in between.
#include "gyre/jobs/service/service.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>

#include "gyre/base/file.h"
#include "gyre/jobs/agent/node_folders.h"
#include "gyre/jobs/agent/node_job.h"
#include "gyre/jobs/api/errors.h"
#include "gyre/jobs/drivers/test_support.h"
#include "gyre/jobs/spec/parse.h"

namespace gyre::jobs::service {
namespace {

namespace fs = std::filesystem;
using api::ExecutionState;
using drivers::conformance::content_of;
using drivers::conformance::wait_until;
using testing::HasSubstr;
using testing::Not;

const api::ClusterName kCluster{"w", "c"};

class JobServiceTest : public testing::Test {
 protected:
  JobServiceTest() {
    share_ = folder_.path() / "share";
    fs::create_directories(share_);
    ::chmod(share_.c_str(), 0777);
    options_.folder = folder_.path() / "state";
    options_.gyre_program = GYRE_PROGRAM;
    options_.environment = {{"PATH", "/usr/local/bin:/usr/bin:/bin"}};
    options_.lease = std::chrono::milliseconds(2'000);
    options_.margin = std::chrono::milliseconds(1'000);
    start();
    service_->create_workspace({"", true}, {"w", ""});
    service_->create_experiment({"w", "e"});
  }
  ~JobServiceTest() override {
    service_.reset();
    for (const auto& node : fs::directory_iterator(options_.folder / "nodes")) {
      if (const int pid = agent_of(node.path())) ::kill(pid, SIGKILL);
      agent::abandon_attempt(node.path());
    }
  }

  void start() { service_ = std::make_unique<Service>(options_); }
  void restart() {
    service_.reset();
    start();
  }

  void make_cluster(int nodes) {
    spec::ClusterSpec cluster;
    cluster.scale_settings = spec::ManualScale{nodes};
    cluster.gyre.mounts = {{"share", share_.string()}};
    service_->create_cluster(kCluster, cluster);
  }

  static api::JobName named(const std::string& name) { return {"w", "e", name}; }

  static spec::JobSpec job_of(int nodes, const std::string& line, const std::string& more = "") {
    const std::string text = fmt::format(
        R"({{"properties": {{"nodeCount": {}, "stdOutErrPathPrefix": "$AZ_BATCHAI_MOUNT_ROOT/share"{},
             "customToolkitSettings": {{"commandLine": "{}"}}}}}})",
        nodes, more, line);
    return spec::job_or_throw(spec::parse_job(text), "the test's job");
  }
  api::Job submit(const std::string& name, const spec::JobSpec& spec) {
    return service_->submit(named(name), {spec, kCluster, ""}).item;
  }
  ExecutionState state_of(const std::string& name) { return service_->job(named(name)).execution_state; }
  api::Job ended(const std::string& name) {
    EXPECT_TRUE(wait_until([&] {
      const ExecutionState state = state_of(name);
      return state == ExecutionState::kSucceeded || state == ExecutionState::kFailed;
    }));
    return service_->job(named(name));
  }
  std::string log_of(const std::string& name, const std::string& file = "stdout.txt") {
    for (const api::OutputDirectory& directory : service_->output_directories(named(name))) {
      if (directory.id == "stdouterr") return content_of(directory.root / directory.relative / file);
    }
    return "";
  }
  std::string events_of(const std::string& name) {
    std::string text;
    for (const api::Event& event : service_->events({"w", "", "e", name}, 0, 1'000)) {
      text += fmt::format("{} {}>{} {} {}\n", event.subject, event.from, event.to, event.reason, event.message);
    }
    return text;
  }
  static int agent_of(const fs::path& node) {
    std::ifstream lock(agent::NodeFolders(node).lock());
    int pid = 0;
    lock >> pid;
    return pid;
  }

  drivers::conformance::PublicFolder folder_;
  fs::path share_;
  ServiceOptions options_;
  std::unique_ptr<Service> service_;
};

TEST_F(JobServiceTest, a_job_succeeds_and_its_files_are_where_batch_ai_put_them) {
  make_cluster(2);
  const std::string output =
      R"(, "outputDirectories": [{"id": "MODEL", "pathPrefix": "$AZ_BATCHAI_MOUNT_ROOT/share"}])";
  const api::Job queued = submit("first", job_of(2, "echo hello; echo model > $AZ_BATCHAI_OUTPUT_MODEL/m.txt", output));
  EXPECT_EQ(queued.execution_state, ExecutionState::kQueued);
  const api::Job job = ended("first");
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

TEST_F(JobServiceTest, a_job_that_fails_has_its_exit_code_and_one_error) {
  make_cluster(1);
  submit("bad", job_of(1, "exit 7"));
  const api::Job job = ended("bad");
  EXPECT_EQ(job.execution_state, ExecutionState::kFailed);
  EXPECT_EQ(job.execution_info.exit_code, 7);
  ASSERT_EQ(job.execution_info.errors.size(), 1U);
  EXPECT_EQ(job.execution_info.errors.front().code, "JobFailed");
  EXPECT_EQ(service_->why(named("bad")).reason, "JobFailed");
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
  ::kill(agent_of(root), SIGSTOP);  // It hangs: it neither renews its lease nor ends.
  const api::Job job = ended("moved");
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
    } catch (const api::ServiceError& error) {
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

}  // namespace
}  // namespace gyre::jobs::service
