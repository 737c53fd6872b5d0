// What the page shows of a job's ranks comes from their launchers on its nodes, while the job runs and afterwards.
#include "gyre/jobs/http/service_process_test_support.h"

namespace gyre::jobs::http {
namespace {

class RunTest : public ServiceProcessTest {
 protected:
  RunTest() : ServiceProcessTest(2) { start_process(); }

  void submit(const std::string& toolkit, int nodes) {
    ask(Method::kPut, path_of("job"),
        fmt::format(R"({{"properties": {{"cluster": {{"id": "c"}}, "nodeCount": {},
        "stdOutErrPathPrefix": "$AZ_BATCHAI_JOB_TEMP_DIR", {}}}}})",
                    nodes, toolkit));
  }
  std::string state() const { return ask(Method::kGet, path_of("job")).at("properties").at("executionState"); }
  Json now() const { return ask(Method::kGet, path_of("job") + "/run/now"); }
};

// A rank that was killed is what somebody who looks at a failed job wants to see first.
TEST_F(RunTest, a_rank_of_gyre_run_that_was_killed_is_named_first) {
  submit(
      R"("customToolkitSettings": {"commandLine": "\"$GYRE_PROGRAM\" run -n 2 -- sh -c 'if [ $GYRE_RANK = 1 ]; then while ! [ -e \"$AZ_BATCHAI_MOUNT_ROOT/share/go\" ]; do sleep 0.01; done; kill -9 $$; fi; exec sleep 1000'"})",
      1);
  ASSERT_TRUE(wait_until([&] { return now().at("job").at("ranks").size() == 2; }));
  EXPECT_EQ(now().at("job").at("state"), "running");
  EXPECT_EQ(now().at("over"), false);
  drivers::conformance::write_file(share_ / "go", "");
  ASSERT_TRUE(wait_until([&] { return now().at("over") == true; }));
  const Json job = now().at("job");
  EXPECT_EQ(job.at("state"), "failed") << job.dump();
  EXPECT_EQ(job.at("exit_code"), 137);
  EXPECT_EQ(job.at("first_failed_rank"), 1);
  EXPECT_EQ(job.at("ranks").at(0).at("detail"), "was killed by SIGKILL; it failed first");
  EXPECT_EQ(job.at("ranks").at(1).at("phase"), "stopped");
}

// Ranks that the job's nodes start by themselves are seen on all of them, also after the service was killed.
TEST_F(RunTest, ranks_of_all_nodes_are_seen) {
  drivers::conformance::write_file(share_ / "job.sh", "echo rank $GYRE_RANK\n");
  submit(R"("pyTorchSettings": {"pythonInterpreterPath": "/bin/sh",
      "pythonScriptFilePath": "$AZ_BATCHAI_MOUNT_ROOT/share/job.sh", "communicationBackend": "gloo",
      "processCount": 2})",
         2);
  ASSERT_TRUE(wait_until([&] { return state() == "succeeded" || state() == "failed"; }));
  process_->kill();
  process_->start();
  const Json shown = now();
  EXPECT_EQ(shown.at("job").at("state"), "ended") << shown.dump();
  ASSERT_EQ(shown.at("job").at("ranks").size(), 2U) << shown.dump();
  for (const Json& rank : shown.at("job").at("ranks")) EXPECT_EQ(rank.at("phase"), "ended");
  EXPECT_EQ(shown.at("logs"), (Json{{"0", 7}, {"1", 7}}));
}

}  // namespace
}  // namespace gyre::jobs::http
