// The process of an attempt runs as the job's account, which may kill, stop or trace it, and say anything in its place.
// Whatever comes over its descriptor, the node program ends the attempt in time, with a record that tells the truth.
#include "gyre/jobs/node/node_job.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "gyre/base/clock.h"
#include "gyre/jobs/node/launch_plan.h"
#include "gyre/jobs/node/node_folders.h"

namespace gyre::jobs::node {

using orders::NodeReport;
using orders::Phase;
using orders::StopReason;
using orders::WorkOrder;

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using testing::HasSubstr;

/// A node program's side of attempts whose process is a script of the test's.
class AttemptProcess : public testing::Test {
 protected:
  AttemptProcess() {
    std::string name = "/tmp/gyre-attempt-XXXXXX";
    place_ = ::mkdtemp(name.data());
    ::chmod(place_.c_str(), 0755);
    fs::create_directories(place_ / "share");
    ::chmod((place_ / "share").c_str(), 0777);
    if (::geteuid() == 0) options_.user = find_job_user("nobody");
    options_.root = place_ / "node";
    options_.gyre_program = place_ / "program";
    options_.base = {{"PATH", "/usr/bin:/bin"}};
    // Of this test alone: processes are found by it, and killed, while other tests run.
    order_.attempt = fmt::format("attempt-{}", ::getpid());
    order_.job_name = "job";
    order_.cluster_name = "cluster";
    order_.path_segment = "s/g/workspaces/w/experiments/e/jobs/job/id";
    order_.nodes = {{"n0", "127.0.0.2", 1, 0}};
    order_.shared_folder = place_ / "shared";
    order_.key = std::string(64, '0');
    order_.cluster.gyre.mounts = {{"share", place_ / "share"}};
    order_.cluster.vm_size = "local";
    order_.job.cluster_id = "c";
    order_.job.std_out_err_path_prefix = "$AZ_BATCHAI_MOUNT_ROOT/share";
    order_.job.toolkit = spec::CustomToolkitSettings{"true"};
  }
  ~AttemptProcess() override {
    job_.reset();
    fs::remove_all(place_);
  }

  /// `script`, for bash, is the process; $fd is its descriptor.
  void start(const std::string& script) {
    std::ofstream(place_ / "program") << "#!/bin/bash\nfd=$3\necho run >> " << (place_ / "share/starts").string()
                                      << "\n"
                                      << script << "\n";
    ::chmod((place_ / "program").c_str(), 0755);
    job_ = std::make_unique<NodeJob>(options_, order_);
  }
  /// The report once `fits`, or the last one.
  template <typename Fits>
  NodeReport report_when(const Fits& fits) {
    const Deadline deadline = Deadline::after(std::chrono::seconds(60));
    while (!fits(job_->report()) && !deadline.passed()) {
      pollfd wait{.fd = job_->changed_fd(), .events = POLLIN, .revents = 0};
      ::poll(&wait, 1, deadline.poll_timeout_ms());
      job_->clear_changed();
    }
    return job_->report();
  }
  NodeReport end() {
    return report_when([](const NodeReport& report) { return report.phase == Phase::kEnded; });
  }
  std::string error_of(const NodeReport& report) {
    return report.record && report.record->error ? report.record->error->message : "no error";
  }
  std::size_t starts() const {
    std::ifstream file(place_ / "share/starts");
    std::size_t count = 0;
    for (std::string line; std::getline(file, line);) ++count;
    return count;
  }
  static std::string progress(const char* step, const Json& changes = Json::object()) {
    Json whole = {{"step", step},
                  {"facts", nullptr},
                  {"record", nullptr},
                  {"notes", Json::array()},
                  {"log_lengths", Json::object()}};
    whole.update(changes);
    return fmt::format("printf '%s\\n' '{}' >&$fd; read -r -u $fd task; read -r -u $fd saved;",
                       Json{{"save", whole}}.dump());
  }
  static Json record(const Json& changes = Json::object()) {
    Json whole = {{"exit_code", 0},  {"error", nullptr}, {"asked_to_end", false},
                  {"started_us", 0}, {"ended_us", 0},    {"left_behind", Json::array()}};
    whole.update(changes);
    return {{"record", whole}};
  }

  fs::path place_;
  NodeOptions options_;
  WorkOrder order_;
  std::unique_ptr<NodeJob> job_;
};

TEST_F(AttemptProcess, that_dies_is_started_again_three_times_and_then_the_attempt_has_failed) {
  start("echo 'no memory left' >&2; exit 7");
  const NodeReport report = end();
  EXPECT_EQ(report.record->error->code, resources::error_code::kInternal);
  EXPECT_THAT(error_of(report), HasSubstr("has ended 4 times (exit code 7: no memory left"));
  EXPECT_EQ(starts(), 4U);
  EXPECT_THAT(report.notes, testing::Contains(HasSubstr("is started again")));
}

TEST_F(AttemptProcess, that_leaves_without_a_record_has_not_done_its_work) {
  start("exit 0");
  EXPECT_THAT(error_of(end()), HasSubstr("it left its work undone"));
}

TEST_F(AttemptProcess, that_is_done_decides_the_record_but_not_its_times) {
  start(progress("stopped", record({{"exit_code", 3}, {"asked_to_end", true}})));
  const NodeReport report = end();
  EXPECT_EQ(report.record->exit_code, 3);
  EXPECT_FALSE(report.record->asked_to_end);  // Nobody has.
  EXPECT_GT(report.record->started_us, 0);
  EXPECT_GE(report.record->ended_us, report.record->started_us);
  EXPECT_EQ(report.log_folder, (place_ / "share" / order_.path_segment / "stdouterr").string());
}

TEST_F(AttemptProcess, that_sends_an_invalid_line_ends_the_attempt) {
  const std::string lies[] = {
      "echo 'no JSON' >&$fd; sleep 1000",
      "echo '[1, 2]' >&$fd; sleep 1000",
      "echo '{\"save\": 7}' >&$fd; sleep 1000",
      "head -c 6000000 /dev/zero | tr '\\0' x >&$fd; sleep 1000",
      "echo '{\"report\": {\"phase\": \"ended\", \"notes\": []}}' >&$fd; sleep 1000",
      "echo '{\"report\": {\"phase\": \"done\", \"notes\": []}}' >&$fd; sleep 1000",  // Without facts.
  };
  for (const std::string& lie : lies) {
    SCOPED_TRACE(lie);
    job_.reset();
    order_.attempt += "x";
    start(lie);
    const NodeReport report = end();
    EXPECT_EQ(report.record->error->code, resources::error_code::kInternal);
    EXPECT_THAT(error_of(report), HasSubstr("sent an invalid line"));
    EXPECT_FALSE(report.facts);
  }
}

TEST_F(AttemptProcess, cannot_move_the_logs_that_the_service_reads) {
  start(
      "echo '{\"report\": {\"phase\": \"preparing\", \"notes\": [], \"log_folder\": \"/etc\", \"outputs\": {\"X\": "
      "\"/root\"}}}' >&$fd; " +
      progress("stopped", record()));
  const NodeReport report = end();
  EXPECT_EQ(report.log_folder, (place_ / "share" / order_.path_segment / "stdouterr").string());
  EXPECT_TRUE(report.outputs.empty());
}

TEST_F(AttemptProcess, that_is_stopped_is_killed_when_the_attempt_must_end) {
  start("echo '{\"report\": {\"phase\": \"preparing\", \"notes\": [\"here\"]}}' >&$fd; kill -STOP $$");
  report_when([](const NodeReport& report) { return !report.notes.empty(); });
  const auto asked = SteadyClock::now();
  job_->stop(StopReason::kLeaseLost, std::chrono::seconds(0));
  const NodeReport report = end();
  EXPECT_LT(SteadyClock::now() - asked, std::chrono::seconds(30));
  EXPECT_TRUE(report.record->asked_to_end);
  EXPECT_THAT(error_of(report), HasSubstr("could not reach the service"));
}

// The node program must not wait for it to read: it could not carry out any order.
TEST_F(AttemptProcess, that_never_reads_does_not_hold_up_the_node_program) {
  start("while echo '{\"log\": \"x\"}' >&$fd; do :; done");
  ::poll(nullptr, 0, 300);
  job_->stop(StopReason::kRequest, std::chrono::seconds(0));
  EXPECT_THAT(error_of(end()), HasSubstr("the job was terminated"));
}

TEST_F(AttemptProcess, is_killed_with_its_node_program) {
  start("echo $$ > " + (place_ / "share/pid").string() +
        "; echo '{\"report\": {\"phase\": \"preparing\", \"notes\": [\"here\"]}}' >&$fd; exec sleep 1000");
  report_when([](const NodeReport& report) { return !report.notes.empty(); });
  int pid = 0;
  std::ifstream(place_ / "share/pid") >> pid;
  ASSERT_GT(pid, 1);
  job_.reset();  // Leaves the attempt as it is.
  EXPECT_FALSE(fs::exists(fmt::format("/proc/{}", pid)));
  EXPECT_TRUE(fs::exists(NodeFolders(options_.root).current()));
}

/// Nothing can be written into files, as on a full disk.
class FullDisk {
 public:
  FullDisk() {
    ::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit none{0, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &none);
  }
  ~FullDisk() { ::setrlimit(RLIMIT_FSIZE, &before_); }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  rlimit before_{};
};

// The node program that came after it found the last state that had been written, and ran the attempt again: beside the
// job's next attempt, and the next job of the node failed because it was busy.
TEST_F(AttemptProcess, that_ended_on_a_full_disk_is_not_started_again_by_the_next_node_program) {
  const std::string begun = R"({"report": {"phase": "preparing", "notes": ["here"]}})";
  // The second time it has nothing but to clean up.
  start(fmt::format("[ $(wc -l < {}) = 1 ] || exit 0; echo '{}' >&$fd; exec sleep 1000",
                    (place_ / "share/starts").string(), begun));
  report_when([](const NodeReport& report) { return !report.notes.empty(); });
  {
    const FullDisk full;
    job_->stop(StopReason::kRequest, std::chrono::seconds(0));
    EXPECT_THAT(error_of(end()), HasSubstr("the job was terminated"));
    job_.reset();
  }
  EXPECT_EQ(starts(), 1U);
  job_ = NodeJob::resume(options_);
  ASSERT_NE(job_, nullptr);
  EXPECT_EQ(job_->order().attempt, order_.attempt);
  job_->stop(StopReason::kRequest, std::chrono::seconds(0));
  EXPECT_THAT(error_of(end()), HasSubstr("the disk of its node was full"));
  EXPECT_TRUE(fs::exists(NodeFolders(options_.root).record(order_.attempt)));
  job_.reset();
  EXPECT_EQ(NodeJob::resume(options_), nullptr);
}

TEST_F(AttemptProcess, runs_as_the_jobs_account_and_knows_no_secret_of_the_cluster) {
  order_.cluster.setup_task.reset();
  order_.cluster.mount_volumes.azure_file_shares.push_back({"a", "u", "share", {"cluster-key", std::nullopt}});
  start("read -r -u $fd task; printf '%s' \"$task\" > " + (place_ / "share/task").string() + "; id -u > " +
        (place_ / "share/user").string() + "; exit 1");
  end();
  std::string task;
  std::getline(std::ifstream(place_ / "share/task"), task);
  EXPECT_THAT(task, HasSubstr(order_.attempt));
  EXPECT_THAT(task, testing::Not(HasSubstr("cluster-key")));
  uid_t user = 0;
  std::ifstream(place_ / "share/user") >> user;
  EXPECT_EQ(user, options_.user ? options_.user->id.user : ::geteuid());
}

}  // namespace
}  // namespace gyre::jobs::node
