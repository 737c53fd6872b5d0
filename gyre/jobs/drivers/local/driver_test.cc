// Virtual nodes on this machine are the embedded default; they must behave as nodes of an engine do.
#include "gyre/jobs/drivers/local/driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <csignal>
#include <fstream>

#include "gyre/base/cgroup.h"
#include "gyre/base/clock.h"
#include "gyre/base/file.h"
#include "gyre/base/process.h"
#include "gyre/base/random.h"
#include "gyre/jobs/drivers/driver_conformance.h"
#include "gyre/jobs/node/lost_node.h"
#include "gyre/jobs/node/node_folders.h"

namespace gyre::jobs::drivers {
namespace {

namespace fs = std::filesystem;

class LocalFixture final : public conformance::DriverFixture {
 public:
  static constexpr bool kNodesShareAFolder = true;

  explicit LocalFixture(const fs::path& folder) {
    options_.folder = folder / "state";
    options_.gyre_program = GYRE_PROGRAM;
    options_.environment = {{"PATH", "/usr/local/bin:/usr/bin:/bin"}};
    options_.lease = std::chrono::milliseconds(2'000);
    options_.margin = std::chrono::milliseconds(1'000);
    options_.give_up = std::chrono::seconds(5);
    restart();
  }
  ~LocalFixture() override {
    end();
    for (const auto& node : places(3)) {
      if (const int pid = program_pid(node.id)) ::kill(pid, SIGKILL);
      node::abandon_attempt(options_.folder / "nodes" / node.id);
    }
  }
  LocalFixture(const LocalFixture&) = delete;
  LocalFixture& operator=(const LocalFixture&) = delete;

  static std::vector<orders::NodePlace> places(int count) { return local::local_nodes(count); }
  fs::path node_folder(const std::string& node) const { return options_.folder / "nodes" / node; }
  fs::path log_store() const { return options_.logs(); }

 private:
  std::unique_ptr<Driver> make_driver() const override { return std::make_unique<local::LocalDriver>(options_); }
  void signal_program(const std::string& node, int signal) const override {
    if (const int pid = program_pid(node); pid > 1) ::kill(pid, signal);
  }
  int program_pid(const std::string& node) const {
    int pid = 0;
    std::ifstream(node::NodeFolders(node_folder(node)).lock()) >> pid;
    return pid;
  }

  local::LocalOptions options_;
};

INSTANTIATE_TYPED_TEST_SUITE_P(Local, DriverConformance, LocalFixture);

class LocalJobs : public DriverConformance<LocalFixture> {
 protected:
  /// The processes that hold the ranks of the node's attempt.
  std::vector<int> launches_of(const std::string& node) const {
    const std::string specification = fixture_->node_folder(node) / "private/ranks.sock.json";
    std::vector<int> found;
    for (const auto& entry : fs::directory_iterator("/proc")) {
      if (conformance::content_of(entry.path() / "cmdline").find(specification) == std::string::npos) continue;
      found.push_back(std::stoi(entry.path().filename()));
    }
    return found;
  }
  /// `process`: its folder in /proc.
  static void expect_light(const fs::path& process) {
    EXPECT_EQ(fs::read_symlink(process / "exe").filename(), "gyre-node");
    EXPECT_THAT(conformance::content_of(process / "maps"),
                testing::Not(testing::ContainsRegex("/lib(curl|hwy|sqlite3)")));
  }
  static int cgroups_of_attempt(const std::string& attempt) {
    int found = 0;
    for (const fs::path& around : cgroups_of(::getpid(), CgroupController::kMemory)) {
      for (const auto& entry : fs::directory_iterator(around)) {
        const std::string name = entry.path().filename();
        found += name.starts_with("gyre-") && name.ends_with("-" + attempt) ? 1 : 0;
      }
    }
    return found;
  }
  static std::vector<int> children_of(int pid) {
    std::vector<int> found;
    std::istringstream text(conformance::content_of(fmt::format("/proc/{0}/task/{0}/children", pid)));
    for (int child = 0; text >> child;) found.push_back(child);
    return found;
  }
};

// Four processes on each host of the list, over ssh, as the article's script does with mpirun.
constexpr const char* kRunScript = R"(#!/bin/bash
set -e
[ -e "$AZ_BATCHAI_INPUT_DATASET/data_batch_1" ]
for host in ${AZ_BATCH_HOST_LIST//,/ }; do
  ssh "$host" 'for i in $(seq $PROCESSES_PER_NODE); do
    echo "$AZ_BATCH_NODE_ID process $i $(cat $AZ_BATCHAI_JOB_TEMP/prepared) ${GYRE_RANK-no rank}" &
  done; wait' &
done
wait
echo checkpoint > "$AZ_BATCHAI_OUTPUT_MODEL/checkpoint-5"
echo '[]' > "$HOROVOD_TIMELINE"
)";

// The sample of article 000 as published; only its two scripts and its data stand in for the article's.
TEST_F(LocalJobs, the_sample_job_runs_over_two_nodes_and_its_outputs_are_in_their_places) {
  const fs::path storage = share_ / "storagedir";
  conformance::write_file(storage / "horovod/run-cifar10.sh", kRunScript);
  conformance::write_file(
      storage / "horovod/job-prep.sh",
      "#!/bin/bash\necho preparing\nhostname > /dev/null\necho yes > $AZ_BATCHAI_JOB_TEMP/prepared\n");
  conformance::write_file(storage / "horovod/data/cifar-10-batches-py/data_batch_1", "data");
  for (const char* name : {"storagedir", "storagedir/horovod"}) ::chmod((share_ / name).c_str(), 0777);
  const std::string sample = conformance::content_of(GYRE_TEST_DATA "/batchai/job.json");
  WorkOrder order = order_of("sample", spec::job_or_throw(spec::parse_job(sample), "job.json"));
  order.cluster.gyre.mounts = {{"external", share_.string()}};

  const auto result = run(order);
  EXPECT_TRUE(result.succeeded()) << (result.error ? result.error->message : "");
  const fs::path logs = storage / order.path_segment / "stdouterr";
  EXPECT_EQ(result.log_folder, logs);
  const fs::path outputs = storage / "horovod" / order.path_segment / "outputs";
  EXPECT_EQ(conformance::content_of(outputs / "models/checkpoint-5"), "checkpoint\n");
  EXPECT_EQ(conformance::content_of(outputs / "timelines/timeline.json"), "[]\n");
  EXPECT_EQ(result.outputs.at("MODEL"), (outputs / "models").string());

  const std::string text = conformance::content_of(logs / "stdout.txt");
  EXPECT_EQ(conformance::content_of(logs / "stderr.txt"), "");
  EXPECT_EQ(std::ranges::count(text, '\n'), 8) << text;
  for (const auto& node : order.nodes) {
    EXPECT_EQ(conformance::content_of(logs / ("stdout-job_prep-" + node.id + ".txt")), "preparing\n");
    for (const char* number : {"1", "2", "3", "4"}) {
      EXPECT_THAT(text, testing::HasSubstr(node.id + " process " + number + " yes no rank\n"));
    }
  }
  expect_nothing_left(order);
}

// What mpirun and `gyre run` rest on: stdin reaches the other node and ends there, and the exit code comes back.
TEST_F(LocalJobs, the_remote_shell_hands_on_input_its_end_and_the_exit_code) {
  const WorkOrder order =
      this->order("shell", 2,
                  this->line("echo input | ssh node-1 'cat; echo $AZ_BATCH_NODE_ID >&2; exit 5'; echo $?; "
                             "seq 1 100000 | ssh -T 127.0.0.3 wc -l; ssh -n node-1 cat; exit 0"));
  EXPECT_TRUE(run(order).succeeded());
  EXPECT_EQ(log(order, "stdout.txt"), "input\n5\n100000\n");
  EXPECT_EQ(log(order, "stderr.txt"), "node-1\n");
}

// Two processes on each node find each other through what the service hands down, without a word in the job.
TEST_F(LocalJobs, tasks_of_several_nodes_get_their_indices_and_their_place_among_the_ranks) {
  conformance::write_file(share_ / "task.sh",
                          "echo $AZ_BATCHAI_TASK_INDEX $RANK $WORLD_SIZE $LOCAL_RANK $GYRE_SIZE $AZ_BATCH_NODE_ID "
                          "$AZ_BATCHAI_PYTORCH_BACKEND\n");
  const WorkOrder order = this->order("torch", 2,
                                      R"("pyTorchSettings": {"pythonScriptFilePath":
      "$AZ_BATCHAI_MOUNT_ROOT/share/task.sh", "pythonInterpreterPath": "/bin/sh", "processCount": 3})");
  const auto result = run(order);
  EXPECT_TRUE(result.succeeded()) << (result.error ? result.error->message : "");
  EXPECT_EQ(log(order, "stdout-0.txt"), "0 0 3 0 3 node-0 gloo\n");
  EXPECT_EQ(log(order, "stdout-1.txt"), "1 1 3 1 3 node-0 gloo\n");
  EXPECT_EQ(log(order, "stdout-2.txt"), "2 2 3 0 3 node-1 gloo\n");
}

// A parameter server never ends by itself; the job must not wait for it, nor fail because it is ended.
TEST_F(LocalJobs, parameter_servers_are_ended_when_all_workers_are_done) {
  conformance::write_file(share_ / "role.sh", R"(echo $1 $AZ_BATCHAI_TASK_INDEX $AZ_BATCHAI_PS_HOSTS $TF_CONFIG
[ $1 != server ] || sleep 1000
sleep 0.$AZ_BATCHAI_TASK_INDEX)");
  const WorkOrder order = this->order("roles", 2, R"("tensorFlowSettings": {
      "pythonScriptFilePath": "$AZ_BATCHAI_MOUNT_ROOT/share/role.sh", "pythonInterpreterPath": "/bin/sh",
      "masterCommandLineArgs": "master", "workerCommandLineArgs": "worker",
      "parameterServerCommandLineArgs": "server", "workerCount": 2, "parameterServerCount": 1})");
  const auto result = run(order);
  EXPECT_TRUE(result.succeeded()) << (result.error ? result.error->message : "");
  EXPECT_TRUE(log(order, "stdout-ps-0.txt").starts_with("server 0 127.0.0.2:")) << log(order, "stdout-ps-0.txt");
  EXPECT_TRUE(log(order, "stdout-wk-0.txt").starts_with("master 0 127.0.0.2:"));
  EXPECT_THAT(log(order, "stdout-wk-1.txt"), testing::HasSubstr(R"("task":{"index":1,"type":"worker"})"));
  expect_nothing_left(order);
}

constexpr const char* kServersOnTwoNodes = R"("tensorFlowSettings": {
    "pythonScriptFilePath": "$AZ_BATCHAI_MOUNT_ROOT/share/role.sh", "pythonInterpreterPath": "/bin/sh",
    "masterCommandLineArgs": "master", "parameterServerCommandLineArgs": "server", "workerCount": 1,
    "parameterServerCount": 2})";

// The job never ended: no process of the second node could report that its workers were done.
TEST_F(LocalJobs, a_node_of_parameter_servers_alone_holds_up_nobody) {
  conformance::write_file(share_ / "role.sh", "[ $1 = master ] || exec sleep 1000\nsleep 0.2\n");
  const WorkOrder order = this->order("servers", 2, kServersOnTwoNodes);
  const auto result = run(order);
  EXPECT_TRUE(result.succeeded()) << (result.error ? result.error->message : "");
  expect_nothing_left(order);
}

TEST_F(LocalJobs, a_parameter_server_that_fails_before_the_workers_are_done_fails_the_job) {
  conformance::write_file(share_ / "role.sh",
                          "[ $1 = master ] && exec sleep 1000\n"
                          "[ $AZ_BATCHAI_TASK_INDEX = 0 ] && exec sleep 1000\nexit 7\n");
  const WorkOrder order = this->order("broken", 2, kServersOnTwoNodes);
  const auto result = run(order);
  ASSERT_TRUE(result.error);
  EXPECT_EQ(result.error->code, "JobFailed");
  EXPECT_EQ(result.exit_code, 7);
  expect_nothing_left(order);
}

TEST_F(LocalJobs, an_order_that_can_never_run_is_refused_before_anything_starts) {
  WorkOrder order = this->order("nowhere", 1, this->line("true"));
  order.cluster.gyre.mounts.clear();
  try {
    driver().submit(order);
    FAIL() << "it was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.what(), testing::HasSubstr("--mount share=DIR"));
  }
}

// It was accepted, and each job of the cluster failed with an internal error.
TEST_F(LocalJobs, a_mount_that_is_not_there_is_refused_with_the_cluster_and_named_at_the_start_of_a_job) {
  WorkOrder order = this->order("unmounted", 1, this->line("true"));
  driver().check(order.cluster);
  order.cluster.gyre.mounts["data"] = (share_ / "missing").string();
  const std::string words = "there is no directory " + (share_ / "missing").string();
  try {
    driver().check(order.cluster);
    FAIL() << "it was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.what(), testing::HasSubstr("mount 'data': " + words));
  }
  // It may vanish afterwards; other drivers do not see the nodes' directories.
  const auto result = run(order);
  ASSERT_TRUE(result.error);
  EXPECT_EQ(result.error->code, "UnusablePath");
  EXPECT_EQ(result.exit_code, 125);
  EXPECT_THAT(result.error->message,
              testing::HasSubstr("node node-0 cannot use mount 'data' of the cluster: " + words));
  expect_nothing_left(order);
}

// Where the service is root its jobs must be nobody of importance.
TEST_F(LocalJobs, jobs_do_not_run_as_root) {
  const WorkOrder order = this->order("who", 1, this->line("id -u; [ -w $HOME ] && echo home"));
  EXPECT_TRUE(run(order).succeeded());
  const std::string expected = ::geteuid() == 0 ? "65534" : std::to_string(::geteuid());
  EXPECT_EQ(log(order, "stdout.txt"), expected + "\nhome\n");
}

// Each attempt starts them on each of its nodes. As `gyre` they took 10 ms of processor time each for loading what only
// other verbs need (libcurl alone brings 25 libraries).
TEST_F(LocalJobs, the_processes_of_an_attempt_load_few_libraries) {
  const WorkOrder order = this->order("light", 1, this->line("touch $AZ_BATCHAI_MOUNT_ROOT/share/runs; sleep 1000"));
  driver().submit(order);
  EXPECT_TRUE(wait_until([&] { return exists("runs"); }));
  int attempts = 0;
  for (const std::string& process : fixture_->processes_of(order.attempt)) {
    if (conformance::content_of(process + "/cmdline").find("--agent-fd") == std::string::npos) continue;
    ++attempts;
    expect_light(process);
  }
  EXPECT_EQ(attempts, 1);
  // A process that the launcher starts is, for a moment, another one of it.
  EXPECT_TRUE(wait_until([&] { return launches_of("node-0").size() == 1U; }));
  for (const int pid : launches_of("node-0")) expect_light(fmt::format("/proc/{}", pid));
  driver().cancel(order.attempt, orders::StopReason::kRequest, std::chrono::seconds(0));
  wait_for_end(order.attempt);
  expect_nothing_left(order);
}

// The ranks' own launcher is what keeps them; when it is killed the job must end, with nothing left.
TEST_F(LocalJobs, a_killed_launcher_is_an_internal_error) {
  const WorkOrder order = this->order("unheld", 1, this->line("touch $AZ_BATCHAI_MOUNT_ROOT/share/runs; sleep 1000"));
  driver().submit(order);
  EXPECT_TRUE(wait_until([&] { return exists("runs"); }));
  const std::vector<int> launches = launches_of("node-0");
  EXPECT_EQ(launches.size(), 1U);
  for (const int pid : launches) ::kill(pid, SIGKILL);
  const auto result = wait_for_end(order.attempt);
  ASSERT_TRUE(result.error);
  EXPECT_EQ(result.error->code, "InternalError");
  expect_nothing_left(order);
}

// It ended after 20 s as if nothing ran, and the job ran a second time beside the first.
TEST_F(LocalJobs, an_attempt_whose_node_was_stopped_ends_only_when_nothing_of_it_can_go_on) {
  const WorkOrder order = this->order("stopped", 1, this->line("touch $AZ_BATCHAI_MOUNT_ROOT/share/runs; sleep 1000"));
  driver().submit(order);
  EXPECT_TRUE(wait_until([&] { return exists("runs"); }));
  const std::vector<int> launches = launches_of("node-0");
  ASSERT_EQ(launches.size(), 1U);
  std::vector<int> stopped = children_of(launches[0]);  // The ranks, and the guardian that outlives their launcher.
  EXPECT_GE(stopped.size(), 2U);
  stopped.push_back(launches[0]);
  for (const int pid : stopped) ::kill(pid, SIGSTOP);
  fixture_->lose_node("node-0");
  const auto result = wait_for_end(order.attempt);
  EXPECT_THAT(fixture_->processes_of(order.attempt), testing::IsEmpty());
  EXPECT_THAT(launches_of("node-0"), testing::IsEmpty());
  for (const int pid : stopped) ::kill(pid, SIGKILL);
  EXPECT_THAT(result.lost, testing::ElementsAre("node-0"));
}

// Between the loss of a node and the record of the attempt's end a service may be killed; the next one must not begin
// the same attempt on that node again.
TEST_F(LocalJobs, a_service_that_starts_again_does_not_begin_an_attempt_on_a_node_that_was_given_up) {
  const WorkOrder order =
      this->order("given-up", 1,
                  R"("memoryPerNode": "1gb", )" +
                      this->line("cat /proc/self/cgroup > $AZ_BATCHAI_MOUNT_ROOT/share/cgroups; echo ran >> "
                                 "$AZ_BATCHAI_MOUNT_ROOT/share/times; sleep 1000"));
  driver().submit(order);
  EXPECT_TRUE(wait_until([&] { return exists("times"); }));
  const bool has_limit = conformance::content_of(share_ / "cgroups").find(order.attempt) != std::string::npos;
  EXPECT_EQ(cgroups_of_attempt(order.attempt) > 0, has_limit);  // Not every machine lets us make them.
  fixture_->lose_node("node-0");
  EXPECT_THAT(wait_for_end(order.attempt).lost, testing::ElementsAre("node-0"));
  fixture_->restart();
  heard_ = {};
  driver().reattach({order});
  EXPECT_THAT(wait_for_end(order.attempt).lost, testing::ElementsAre("node-0"));
  EXPECT_EQ(conformance::content_of(share_ / "times"), "ran\n");
  EXPECT_EQ(cgroups_of_attempt(order.attempt), 0);
  expect_nothing_left(order);
}

}  // namespace
}  // namespace gyre::jobs::drivers
