#pragma once

// What each test of driver_conformance.h starts from.

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gyre/base/clock.h"
#include "gyre/jobs/drivers/driver.h"
#include "gyre/jobs/drivers/test_support.h"
#include "gyre/jobs/hub/log_store.h"
#include "gyre/jobs/spec/parse.h"

namespace gyre::jobs::drivers {

namespace conformance {

/// What a test has heard of its attempts.
struct Heard {
  std::map<std::string, hub::AttemptResult> ended;
  std::map<std::string, int> times_ended;
  std::vector<std::string> running;
  std::vector<std::string> notes;
};

}  // namespace conformance

/// A fixture has: driver() (of two nodes at least), places(count), restart() (a new driver in the place of one that is
/// gone without a word), kNodesShareAFolder (what one node writes to AZ_BATCHAI_SHARED_JOB_TEMP the others
/// have), kill_program(node), lose_node(node) (it must not come back), processes_of(attempt), and
/// log_store(), where the logs lie that its nodes send.
template <typename Fixture>
class DriverConformance : public testing::Test {
 protected:
  using Path = std::filesystem::path;

  DriverConformance() {
    share_ = folder_.path() / "share";
    std::filesystem::create_directories(share_);
    ::chmod(share_.c_str(), 0777);  // As a file share is.
    fixture_ = std::make_unique<Fixture>(folder_.path());
  }

  WorkOrder order(const std::string& name, int nodes, const std::string& properties) {
    const std::string text = "{\"properties\": {\"nodeCount\": " + std::to_string(nodes) +
                             ", \"stdOutErrPathPrefix\": \"$AZ_BATCHAI_MOUNT_ROOT/share\", " + properties + "}}";
    return order_of(name, spec::job_or_throw(spec::parse_job(text), "the test's job"));
  }

  static std::string line(const std::string& command) {
    return R"("customToolkitSettings": {"commandLine": ")" + command + "\"}";
  }

  WorkOrder order_of(const std::string& name, const spec::JobSpec& job) {
    WorkOrder order;
    order.attempt = name + "-1";
    order.job_name = name;
    order.cluster_name = "test";
    order.path_segment = "w/" + name;
    order.job = job;
    order.cluster.gyre.mounts = {{"share", share_.string()}};
    order.cluster.gyre.containers = spec::Containers::kHost;
    order.nodes = fixture_->places(job.node_count);
    return order;
  }

  Driver& driver() { return fixture_->driver(); }

  void hear(Deadline deadline) {
    for (Event& event : driver().watch(deadline)) {
      if (event.kind == Event::Kind::kRunning) heard_.running.push_back(event.attempt);
      if (event.kind == Event::Kind::kNote) heard_.notes.push_back(event.text);
      if (event.kind != Event::Kind::kEnded) continue;
      heard_.ended[event.attempt] = *event.result;
      ++heard_.times_ended[event.attempt];
    }
  }

  hub::AttemptResult wait_for_end(const std::string& attempt) {
    const Deadline deadline = Deadline::after(conformance::kLongestWait);
    while (!heard_.ended.contains(attempt)) {
      if (deadline.passed()) {
        ADD_FAILURE() << attempt << " has not ended";
        return {};
      }
      hear(Deadline::after(std::chrono::milliseconds(100)));
    }
    return heard_.ended[attempt];
  }

  hub::AttemptResult run(const WorkOrder& order) {
    driver().submit(order);
    auto result = wait_for_end(order.attempt);
    driver().acknowledge(order.attempt);
    return result;
  }

  /// Keeps the driver going meanwhile.
  bool wait_until(const std::function<bool()>& holds) {
    return conformance::wait_until([&] {
      hear(Deadline::after(std::chrono::milliseconds(5)));
      return holds();
    });
  }

  Path logs(const WorkOrder& order) const { return share_ / order.path_segment / "stdouterr"; }
  std::string log(const WorkOrder& order, const std::string& name) const {
    return conformance::content_of(logs(order) / name);
  }
  /// One whose logs lie on no mount.
  WorkOrder order_without_mount(const std::string& name, int nodes, const std::string& properties) {
    WorkOrder order = this->order(name, nodes, properties);
    order.job.std_out_err_path_prefix = "$AZ_BATCHAI_JOB_TEMP_DIR";
    return order;
  }
  std::string received_log(const WorkOrder& order, const std::string& name) const {
    return conformance::content_of(hub::received_logs(fixture_->log_store(), order) / name);
  }
  bool exists(const std::string& name) const { return std::filesystem::exists(share_ / name); }
  void expect_nothing_left(const WorkOrder& order) {
    EXPECT_TRUE(wait_until([&] { return fixture_->processes_of(order.attempt).empty(); }));
  }

  conformance::PublicFolder folder_;
  Path share_;
  std::unique_ptr<Fixture> fixture_;
  conformance::Heard heard_;
};

}  // namespace gyre::jobs::drivers
