#pragma once

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "gyre/jobs/drivers/test_support.h"
#include "gyre/jobs/node/lost_node.h"
#include "gyre/jobs/node/node_folders.h"
#include "gyre/jobs/resources/service_error.h"
#include "gyre/jobs/service/service.h"
#include "gyre/jobs/spec/parse.h"

// For tests of the whole job service: one in a folder of its own, with workspace "w" and experiment "e", and virtual
// nodes that see the directory `share_` as $AZ_BATCHAI_MOUNT_ROOT/share. GYRE_PROGRAM must be defined.
namespace gyre::jobs::service {

namespace fs = std::filesystem;
using drivers::conformance::content_of;
using drivers::conformance::wait_until;
using resources::ExecutionState;
using testing::HasSubstr;
using testing::Not;

inline const resources::ClusterName kCluster{"w", "c"};

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
    options_.retry_pause = std::chrono::milliseconds(20);
    start();
    service_->create_workspace({"", true}, {"w", ""});
    service_->create_experiment({"w", "e"});
  }
  ~JobServiceTest() override {
    service_.reset();
    end_nodes(options_.folder);
  }

  /// Node programs and jobs that a service has left in its folder.
  static void end_nodes(const fs::path& folder) {
    std::error_code ignored;
    for (const auto& node : fs::directory_iterator(folder / "nodes", ignored)) {
      if (const int pid = program_of(node.path())) ::kill(pid, SIGKILL);
      node::abandon_attempt(node.path());
    }
  }

  void start() { service_ = std::make_unique<Service>(options_); }
  void restart() {
    service_.reset();
    start();
  }

  spec::ClusterSpec cluster_of(const resources::Scale& scale) const {
    spec::ClusterSpec cluster;
    cluster.scale_settings = scale;
    cluster.gyre.mounts = {{"share", share_.string()}};
    return cluster;
  }
  void make_cluster(int nodes) { service_->create_cluster(kCluster, cluster_of(spec::ManualScale{nodes})); }

  static resources::JobName named(const std::string& name) { return {"w", "e", name}; }

  static spec::JobSpec job_of(int nodes, const std::string& line, const std::string& more = "") {
    const std::string text = fmt::format(
        R"({{"properties": {{"nodeCount": {}, "stdOutErrPathPrefix": "$AZ_BATCHAI_MOUNT_ROOT/share"{},
             "customToolkitSettings": {{"commandLine": "{}"}}}}}})",
        nodes, more, line);
    return spec::job_or_throw(spec::parse_job(text), "the test's job");
  }
  resources::Job submit(const std::string& name, const spec::JobSpec& spec) {
    return service_->submit(named(name), {spec, kCluster, ""}).item;
  }
  ExecutionState state_of(const std::string& name) { return service_->job(named(name)).execution_state; }
  resources::Job ended(const std::string& name) {
    EXPECT_TRUE(wait_until([&] {
      const ExecutionState state = state_of(name);
      return state == ExecutionState::kSucceeded || state == ExecutionState::kFailed;
    }));
    return service_->job(named(name));
  }
  std::string log_of(const std::string& name, const std::string& file = "stdout.txt") {
    for (const resources::OutputDirectory& directory : service_->output_directories(named(name))) {
      if (directory.id == "stdouterr") return content_of(directory.root / directory.relative / file);
    }
    return "";
  }
  std::string events_of(const std::string& name) {
    std::string text;
    for (const resources::Event& event : service_->events({"w", "", "e", name}, 0, 1'000)) {
      text += fmt::format("{} {}>{} {} {}\n", event.subject, event.from, event.to, event.reason, event.message);
    }
    return text;
  }
  static int program_of(const fs::path& node) {
    std::ifstream lock(node::NodeFolders(node).lock());
    int pid = 0;
    lock >> pid;
    return pid;
  }

  drivers::conformance::PublicFolder folder_;
  fs::path share_;
  ServiceOptions options_;
  std::unique_ptr<Service> service_;
};

}  // namespace gyre::jobs::service
