// Nodes whose folders nobody else sees send their logs to a service that is killed meanwhile: every line once.
#include <sstream>
#include <thread>

#include "gyre/jobs/http/service_process_test_support.h"

namespace gyre::jobs::http {
namespace {

constexpr int kKills = 4;
constexpr int kLines = 1'200;

class LogStreamsTest : public ServiceProcessTest {
 protected:
  LogStreamsTest() : ServiceProcessTest(2) { start_process(); }

  std::string state() const { return ask(Method::kGet, path_of("job")).at("properties").at("executionState"); }
  std::string log(const std::string& name) const {
    net::http::Client client({.endpoint = endpoint_, .token = token_, .connect = std::chrono::seconds(30)});
    return client
        .send({.method = Method::kGet,
               .target = net::http::parse_target(path_of("job") + "/files/stdouterr/" + name),
               .headers = {},
               .body = ""})
        .body;
  }
};

TEST_F(LogStreamsTest, a_service_that_is_killed_again_and_again_has_every_line_of_all_nodes_once) {
  drivers::conformance::write_file(share_ / "job.sh",
                                   fmt::format("for i in $(seq 1 {}); do echo line $i of $AZ_BATCHAI_TASK_INDEX\n"
                                               "if [ $((i % 100)) = 0 ]; then sleep 0.05; fi; done\n"
                                               "echo own > $AZ_BATCHAI_STDOUTERR_DIR/own-$AZ_BATCHAI_TASK_INDEX.log\n",
                                               kLines));
  ask(Method::kPut, path_of("job"), R"({"properties": {"cluster": {"id": "c"}, "nodeCount": 2,
      "stdOutErrPathPrefix": "$AZ_BATCHAI_JOB_TEMP_DIR", "pyTorchSettings": {"pythonInterpreterPath": "/bin/sh",
      "pythonScriptFilePath": "$AZ_BATCHAI_MOUNT_ROOT/share/job.sh", "communicationBackend": "gloo",
      "processCount": 2}}})");
  ASSERT_TRUE(wait_until([&] { return state() == "running"; }));
  for (int i = 0; i < kKills; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // The job writes. NOLINT
    process_->kill();
    process_->start();
  }
  ASSERT_TRUE(wait_until([&] { return state() == "succeeded" || state() == "failed"; }));
  EXPECT_EQ(state(), "succeeded");
  const Json files = ask(Method::kGet, path_of("job") + "/files?outputdirectoryid=stdouterr").at("value");
  std::string names;
  for (const Json& file : files) names += file.at("name").get<std::string>() + " ";
  for (int rank = 0; rank < 2; ++rank) {
    std::string expected;
    for (int i = 1; i <= kLines; ++i) expected += fmt::format("line {} of {}\n", i, rank);
    EXPECT_EQ(log(fmt::format("stdout-{}.txt", rank)), expected) << names;
    EXPECT_EQ(log(fmt::format("own-{}.log", rank)), "own\n") << names;
  }
  // Where the nodes had them there is nothing left.
  for (const auto& entry : fs::recursive_directory_iterator(options_.folder / "nodes")) {
    EXPECT_NE(entry.path().filename(), "stdouterr") << entry.path();
  }
}

}  // namespace
}  // namespace gyre::jobs::http
