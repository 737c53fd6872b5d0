// Programs written for Batch AI look at states, exit records and the names of files. They must find what they found
// there (reference: its REST answers and its directories), in whatever way a job ends.
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <functional>
#include <set>
#include <vector>

#include "gyre/jobs/http/http_test_support.h"

namespace gyre::jobs::http {
namespace {

using Json = nlohmann::json;

/// How a job ends, and what is left of it.
struct Ending {
  std::string name{};
  int nodes = 1;
  std::string toolkit{};  ///< Of its properties.
  std::string more{};     ///< Further properties, each behind a comma.
  std::string state = "failed";
  Json exit_code{};               ///< null: no command of it gave one.
  std::string code{};             ///< Of its one error; empty: none.
  std::string reason{};           ///< Of the error's details.
  std::set<std::string> files{};  ///< In its log directory; "NODE" stands for a node's id.
};

std::string custom(const std::string& line) { return R"("customToolkitSettings": {"commandLine": ")" + line + R"("})"; }

std::string preparation(const std::string& line) { return R"(, "jobPreparation": {"commandLine": ")" + line + R"("})"; }

class StatesTest : public ServiceOverHttpTest {
 protected:
  static std::string file_of(int nodes, const std::string& toolkit, const std::string& more = "") {
    return fmt::format(
        R"({{"properties": {{"cluster": {{"id": "c"}}, "nodeCount": {},
            "stdOutErrPathPrefix": "$AZ_BATCHAI_MOUNT_ROOT/share", {}{}}}}})",
        nodes, toolkit, more);
  }
  void put(const std::string& name, const std::string& file) const {
    const Answer answer = as_ada(Method::kPut, path_of(name), file);
    ASSERT_EQ(answer.status, 201) << answer.body;
    const Json properties = Json::parse(answer.body).at("properties");
    EXPECT_EQ(properties.at("executionState"), "queued");
    EXPECT_EQ(properties.at("provisioningState"), "succeeded");
    EXPECT_EQ(properties.at("executionInfo").at("exitCode"), nullptr);
  }
  Json finished(const std::string& name) const {
    Json properties;
    EXPECT_TRUE(wait_until([&] {
      properties = read(path_of(name)).at("properties");
      return properties.at("executionState") == "succeeded" || properties.at("executionState") == "failed";
    }));
    return properties;
  }
  std::set<std::string> files_of(const std::string& name) const {
    std::set<std::string> names;
    const Answer answer = as_ada(Method::kGet, path_of(name) + "/files");
    if (answer.status != 200) return names;
    const Json listed = Json::parse(answer.body);
    for (const Json& file : listed.at("value")) {
      std::string text = file.at("name");
      for (const resources::Node& node : service_->nodes(kCluster)) {
        const std::size_t at = text.find(node.name);
        if (at != std::string::npos) text.replace(at, node.name.size(), "NODE");
      }
      names.insert(text);
    }
    return names;
  }

  void expect(const Ending& ending, const Json& properties) const {
    SCOPED_TRACE(ending.name + ": " + properties.dump());
    EXPECT_EQ(properties.at("executionState"), ending.state);
    const Json& info = properties.at("executionInfo");
    EXPECT_EQ(info.at("exitCode"), ending.exit_code);
    EXPECT_EQ(info.at("errors").size(), ending.code.empty() ? 0U : 1U);
    if (!ending.code.empty() && !info.at("errors").empty()) {
      const Json& error = info.at("errors").front();
      EXPECT_EQ(error.at("code"), ending.code);
      EXPECT_FALSE(error.at("message").get<std::string>().empty());
      std::string reason;
      for (const Json& detail : error.at("details")) {
        if (detail.at("name") == "reason") reason = detail.at("value");
      }
      EXPECT_EQ(reason, ending.reason);
    }
    EXPECT_TRUE(info.at("endTime").is_string());
    if (info.at("startTime").is_string()) {
      EXPECT_LE(info.at("startTime").get<std::string>(), info.at("endTime").get<std::string>());
    }
    EXPECT_EQ(files_of(ending.name), ending.files);
    EXPECT_EQ(properties.at("jobOutputDirectoryPathSegment"),
              fmt::format("{}/gyre/workspaces/w/experiments/e/jobs/{}/{}", options_.subscription, ending.name,
                          service_->job(named(ending.name)).uuid));
  }
};

std::vector<Ending> endings() {
  const std::set<std::string> of_one{"stdout.txt", "stderr.txt", "execution.log"};
  const std::set<std::string> prepared{"stdout.txt", "stderr.txt", "execution.log", "stdout-job_prep.txt",
                                       "stderr-job_prep.txt"};
  const std::set<std::string> of_rank{"stdout-0.txt", "stderr-0.txt", "execution.log", "gyre-1-0.metrics"};
  const std::set<std::string> of_ranks{"stdout-0.txt",       "stderr-0.txt",     "stdout-1.txt",    "stderr-1.txt",
                                       "execution-NODE.log", "gyre-1-0.metrics", "gyre-1-1.metrics"};
  const std::string python = R"("pythonScriptFilePath": "$AZ_BATCHAI_MOUNT_ROOT/share/task.sh",
                                "pythonInterpreterPath": "/bin/sh")";
  return {
      {"success", 1, custom("echo hello"), "", "succeeded", 0, "", "", of_one},
      {"success-on-two",
       2,
       custom("echo hello"),
       "",
       "succeeded",
       0,
       "",
       "",
       {"stdout.txt", "stderr.txt", "execution-NODE.log"}},
      {"nonzero", 1, custom("exit 7"), "", "failed", 7, "JobFailed", "", of_one},
      {"signal", 1, custom("kill -SEGV $$"), "", "failed", 139, "JobFailed", "", of_one},
      {"prepared", 1, custom("true"), preparation("true"), "succeeded", 0, "", "", prepared},
      {"unprepared",
       1,
       custom("echo never"),
       preparation("echo why >&2; exit 3"),
       "failed",
       3,
       "JobPreparationFailed",
       "",
       {"execution.log", "stdout-job_prep.txt", "stderr-job_prep.txt"}},
      {"unprepared-on-two",
       2,
       custom("echo never"),
       preparation("exit 4"),
       "failed",
       4,
       "JobPreparationFailed",
       "",
       {"execution-NODE.log", "stdout-job_prep-NODE.txt", "stderr-job_prep-NODE.txt"}},
      {"missing-program", 1, custom("/no/such/program"), "", "failed", 127, "JobFailed", "", of_one},
      {"too-long", 1, custom("sleep 600"), R"(, "constraints": {"maxWallClockTime": "PT1S"})", "failed", 143,
       "JobFailed", "wall_clock", of_one},
      {"tensorflow",
       1,
       R"("tensorFlowSettings": {)" + python + "}",
       "",
       "succeeded",
       0,
       "",
       "",
       {"stdout-wk-0.txt", "stderr-wk-0.txt", "execution.log", "gyre-1-0.metrics"}},
      {"caffe2", 2, R"("caffe2Settings": {)" + python + "}", "", "succeeded", 0, "", "", of_ranks},
      {"pytorch", 1, R"("pyTorchSettings": {)" + python + "}", "", "succeeded", 0, "", "", of_rank},
  };
}

TEST_F(StatesTest, every_ending_has_batch_ais_state_exit_code_error_and_files) {
  make_cluster(2);
  drivers::conformance::write_file(share_ / "task.sh", "exit 0\n");
  for (const Ending& ending : endings()) put(ending.name, file_of(ending.nodes, ending.toolkit, ending.more));
  for (const Ending& ending : endings()) expect(ending, finished(ending.name));
}

// Pinned by the tests of Batch AI's own client.
TEST_F(StatesTest, a_terminated_job_fails_unless_it_has_finished) {
  make_cluster(1);
  put("done", file_of(1, custom("true")));
  const Json before = finished("done");
  EXPECT_EQ(as_ada(Method::kPost, path_of("done") + "/terminate").status, 200);
  EXPECT_EQ(read(path_of("done")).at("properties"), before);

  put("running", file_of(1, custom("touch $AZ_BATCHAI_MOUNT_ROOT/share/runs; sleep 600")));
  put("queued", file_of(1, custom("true")));
  EXPECT_TRUE(wait_until([&] { return fs::exists(share_ / "runs"); }));
  EXPECT_EQ(as_ada(Method::kPost, path_of("queued") + "/terminate").status, 200);
  const Json queued = finished("queued");
  expect({.name = "queued", .exit_code = nullptr, .code = "JobFailed", .reason = "request", .files = {}}, queued);
  EXPECT_EQ(queued.at("executionInfo").at("startTime"), nullptr);
  EXPECT_EQ(as_ada(Method::kPost, path_of("running") + "/terminate").status, 200);
  expect({.name = "running",
          .exit_code = 143,
          .code = "JobFailed",
          .reason = "request",
          .files = {"stdout.txt", "stderr.txt", "execution.log"}},
         finished("running"));
}

TEST_F(StatesTest, a_running_job_that_is_deleted_is_ended_and_gone_and_its_files_stay) {
  make_cluster(1);
  put("unwanted", file_of(1, custom("echo begun; touch $AZ_BATCHAI_MOUNT_ROOT/share/runs; sleep 600")));
  EXPECT_TRUE(wait_until([&] { return fs::exists(share_ / "runs"); }));
  const std::string segment = read(path_of("unwanted")).at("properties").at("jobOutputDirectoryPathSegment");
  EXPECT_EQ(as_ada(Method::kDelete, path_of("unwanted")).status, 202);
  EXPECT_TRUE(wait_until([&] { return as_ada(Method::kGet, path_of("unwanted")).status == 404; }));
  EXPECT_EQ(code_of(as_ada(Method::kGet, path_of("unwanted"))), "JobNotFound");
  EXPECT_EQ(content_of(share_ / segment / "stdouterr/stdout.txt"), "begun\n");
  put("unwanted", file_of(1, custom("true")));  // The name is free, and its files lie elsewhere.
  EXPECT_NE(finished("unwanted").at("jobOutputDirectoryPathSegment"), segment);
}

TEST_F(StatesTest, a_job_whose_node_is_lost_is_queued_again_and_its_start_is_the_latest_one) {
  make_cluster(1);
  put("moved", file_of(1, custom("if [ -e $AZ_BATCHAI_MOUNT_ROOT/share/first ]; then exit 0; fi; touch "
                                 "$AZ_BATCHAI_MOUNT_ROOT/share/first; sleep 600")));
  EXPECT_TRUE(wait_until([&] { return fs::exists(share_ / "first"); }));
  const std::string first_start = read(path_of("moved")).at("properties").at("executionInfo").at("startTime");
  ::kill(program_of(options_.folder / "nodes" / service_->nodes(kCluster).front().name), SIGSTOP);
  const Json properties = finished("moved");
  EXPECT_EQ(properties.at("executionState"), "succeeded") << events_of("moved");
  EXPECT_GT(properties.at("executionInfo").at("startTime").get<std::string>(), first_start);
  EXPECT_EQ(read(path_of("moved")).at("gyre").at("attempts"), 2);
  EXPECT_THAT(events_of("moved"), testing::AllOf(HasSubstr("job running>queued nodeLost"), HasSubstr("ended")));
}

TEST_F(StatesTest, what_can_never_run_is_refused_or_says_so) {
  make_cluster(1);
  const auto refusal = [&](const std::string& file) { return as_ada(Method::kPut, path_of("x"), file); };
  const Answer two = refusal(file_of(1, custom("true") + R"(, "horovodSettings": {"pythonScriptFilePath": "x.py"})"));
  EXPECT_EQ(two.status, 400);
  EXPECT_EQ(code_of(two), "InvalidJob");
  EXPECT_THAT(two.body, testing::AllOf(HasSubstr("horovodSettings"), HasSubstr("customToolkitSettings")));
  EXPECT_EQ(refusal(file_of(0, custom("true"))).status, 400);

  spec::AutoScale scale;
  scale.maximum_node_count = 2;
  service_->create_cluster({"w", "grows"}, cluster_of(scale));
  std::string large = file_of(3, custom("true"));
  large.replace(large.find("\"c\""), 3, "\"grows\"");
  EXPECT_EQ(code_of(refusal(large)), "NodeCountTooLarge");
  // A manual scale may be changed: the job waits for that, and says so.
  put("larger", file_of(2, custom("true")));
  EXPECT_EQ(read(path_of("larger") + "/why").at("reason"), "clusterTooSmall");
  EXPECT_THAT(read(path_of("larger") + "/why").at("message").get<std::string>(), HasSubstr("resize it to 2"));
  service_->scale_cluster(kCluster, spec::ManualScale{2});
  EXPECT_EQ(finished("larger").at("executionState"), "succeeded");

  const Answer unknown = as_ada(Method::kGet, path_of("larger") + "/files?outputdirectoryid=MODLE");
  EXPECT_EQ(unknown.status, 404);
  EXPECT_EQ(code_of(unknown), "OutputDirectoryNotFound");
  EXPECT_THAT(unknown.body, HasSubstr("stdouterr"));
}

// Clocks are set, by people and by programs; nothing may end, start or wait because of it.
TEST_F(StatesTest, a_wall_clock_that_jumps_ends_nothing) {
  std::atomic<std::int64_t> shift_us{0};
  options_.wall_clock = [&] { return wall_clock_us() + shift_us.load(); };
  stop_serving();
  restart();
  serve();
  make_cluster(1);
  constexpr std::int64_t kYearUs = 365LL * 24 * 3600 * 1'000'000;
  const auto running = [&](const std::string& name) {
    put(name, file_of(1,
                      custom(fmt::format("touch $AZ_BATCHAI_MOUNT_ROOT/share/{0}; while [ ! -e "
                                         "$AZ_BATCHAI_MOUNT_ROOT/share/go-{0} ]; do sleep 0.05; done",
                                         name)),
                      R"(, "constraints": {"maxWallClockTime": "PT1H"})"));
    EXPECT_TRUE(wait_until([&] { return fs::exists(share_ / name); }));
  };
  for (const std::int64_t jump_us : {kYearUs, -2 * kYearUs}) {
    const std::string name = jump_us > 0 ? "forward" : "back";
    running(name);
    shift_us += jump_us;
    stop_serving();
    restart();
    serve();
    // The service has taken it over and looked at every limit by the time that it answers this.
    put("after-" + name, file_of(1, custom("true")));
    EXPECT_EQ(read(path_of(name)).at("properties").at("executionState"), "running") << events_of(name);
    std::ofstream(share_ / ("go-" + name)) << "\n";
    const Json properties = finished(name);
    expect({.name = name, .state = "succeeded", .exit_code = 0, .files = {"stdout.txt", "stderr.txt", "execution.log"}},
           properties);
    EXPECT_EQ(finished("after-" + name).at("executionState"), "succeeded");
  }
  stop_serving();
  service_.reset();
  options_.wall_clock = wall_clock_us;
  start();
  serve();
}

/// A whole service whose only disk is full for a while: the job's, the nodes' and the catalog's.
class OnSmallDisk : public StatesTest {
 public:
  void TestBody() override {
    make_cluster(1);
    put("ready", file_of(1, custom("true")));
    EXPECT_EQ(finished("ready").at("executionState"), "succeeded");
    put("writer", file_of(1, custom("head -c 200000000 /dev/zero > $AZ_BATCHAI_MOUNT_ROOT/share/big || exit 28")));
    // The job itself fills it. From then on changes are refused, reading goes on, and nothing ends.
    Answer refused;
    int made = 0;
    EXPECT_TRUE(wait_until([&] {
      refused = as_ada(Method::kPut, path_of(fmt::format("more-{}", made++)), file_of(1, custom("true")));
      return refused.status == 507;
    })) << refused.status
        << refused.body;
    EXPECT_THAT(refused.body, HasSubstr("the disk is full; nothing was changed"));
    EXPECT_EQ(as_ada(Method::kGet, "/workspaces/w/jobs").status, 200);
    EXPECT_EQ(as_ada(Method::kGet, path_of("writer") + "/why").status, 200);
    EXPECT_EQ(as_ada(Method::kGet, path_of("ready") + "/files/stdouterr/stdout.txt").status, 200);
    fs::remove(share_ / "big");
    const Json properties = finished("writer");
    EXPECT_EQ(properties.at("executionState"), "failed") << events_of("writer");
    EXPECT_EQ(properties.at("executionInfo").at("exitCode"), 28) << properties.dump();
    EXPECT_EQ(properties.at("executionInfo").at("errors").front().at("code"), "JobFailed");
    put("after", file_of(1, custom("echo room")));
    EXPECT_EQ(finished("after").at("executionState"), "succeeded") << events_of("after");
    EXPECT_EQ(log_of("after"), "room\n");
  }
};

// In a process of its own, whose /tmp is a small file system that nobody else sees.
TEST(FullDiskTest, a_full_disk_refuses_changes_and_nothing_is_lost) {
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    const int kinds = ::getuid() == 0 ? CLONE_NEWNS : CLONE_NEWUSER | CLONE_NEWNS;
    if (::unshare(kinds) != 0 || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("none", "/tmp", "tmpfs", 0, "size=24m,mode=1777") != 0) {
      std::perror("a small file system at /tmp");
      ::_exit(2);
    }
    {
      OnSmallDisk test;
      test.TestBody();
    }
    std::fflush(nullptr);
    ::_exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

// A service whose node programs could not live lost job after job, each twenty times, as fast as it could.
TEST_F(StatesTest, node_programs_that_die_at_once_are_started_ever_more_slowly_and_the_job_fails_with_the_reason) {
  service_.reset();
  options_.gyre_program = (folder_.path() / "broken-gyre").string();
  drivers::conformance::write_file(options_.gyre_program, "#!/bin/sh\necho one >&2\necho two >&2\nexit 3\n");
  options_.restart_pause = std::chrono::milliseconds(5);
  start();
  make_cluster(1);
  submit("j", job_of(1, "true"));
  const resources::Job job = ended("j");
  EXPECT_EQ(job.execution_state, ExecutionState::kFailed);
  ASSERT_EQ(job.execution_info.errors.size(), 1U);
  EXPECT_EQ(job.execution_info.errors[0].code, "InternalError");
  EXPECT_THAT(job.execution_info.errors[0].message,
              HasSubstr("its agent was started 6 times and ended each time: one | two"));
  EXPECT_EQ(job.attempts, 1);
  EXPECT_THAT(events_of("j"), HasSubstr("its agent ended: one | two; it is started again in 0.0 s, start 3 of 6"));
  EXPECT_THAT(events_of("j"), HasSubstr("start 6 of 6"));
}

}  // namespace
}  // namespace gyre::jobs::http
