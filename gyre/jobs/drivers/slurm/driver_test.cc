// Jobs on a real Slurm must behave as on virtual nodes: the same suite, against slurmctld and slurmds that
// tests/e2e/slurm_driver_test.py starts, with SLURM_CONF set and GYRE_TEST_SLURM naming the cluster's folder.
#include "gyre/jobs/drivers/slurm/driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "gyre/base/clock.h"
#include "gyre/base/error.h"
#include "gyre/jobs/drivers/driver_conformance.h"

namespace gyre::jobs::drivers {
namespace {

namespace fs = std::filesystem;

std::string output_of(const std::string& command) {
  std::string text;
  FILE* stream = ::popen(command.c_str(), "r");
  std::array<char, 4096> bytes;
  for (std::size_t count = 1; count > 0;) {
    count = std::fread(bytes.data(), 1, bytes.size(), stream);
    text.append(bytes.data(), count);
  }
  ::pclose(stream);
  return text;
}

/// Three nodes, each a slurmd with an address and a /…/local of its own.
class SlurmFixture final : public conformance::EngineFixture<slurm::SlurmOptions> {
 public:
  explicit SlurmFixture(const fs::path& folder) : EngineFixture(folder, {}), cluster_(std::getenv("GYRE_TEST_SLURM")) {
    options_.node_folder = cluster_ / "local";
    options_.gyre = GYRE_PROGRAM;
    for (const char* name : {"PATH", "SLURM_CONF", "HOME"}) {
      if (const char* value = std::getenv(name)) options_.environment[name] = value;
    }
    start();
  }
  ~SlurmFixture() override {
    end();
    output_of("scancel --me");
    EXPECT_TRUE(conformance::wait_until([] { return output_of("squeue --me --noheader").empty(); }));
    EXPECT_THAT(roots(), testing::IsEmpty());
  }
  SlurmFixture(const SlurmFixture&) = delete;
  SlurmFixture& operator=(const SlurmFixture&) = delete;

  using EngineFixture::restart;
  void restart(const slurm::SlurmOptions& options) {
    options_ = options;
    restart();
  }

 private:
  std::unique_ptr<Driver> make_driver() const override { return std::make_unique<slurm::SlurmDriver>(options_); }
  std::vector<fs::path> roots() const override {
    std::vector<fs::path> found;
    for (const auto& host : fs::directory_iterator(cluster_ / "nodes")) add_folders(host.path(), found);
    return found;
  }

  fs::path cluster_;
};

INSTANTIATE_TYPED_TEST_SUITE_P(Slurm, DriverConformance, SlurmFixture);

class SlurmJobs : public DriverConformance<SlurmFixture> {
 protected:
  fs::path home() const { return fixture_->options().folder; }
  static std::string job_of(const WorkOrder& order) {
    const std::string id = output_of("squeue --me --noheader --format=%i --name=gyre-" + order.attempt);
    return id.substr(0, id.find('\n'));
  }
};

// Whether a job waits is Slurm's to decide, and why, the job's events must tell.
TEST_F(SlurmJobs, a_job_that_waits_in_slurms_queue_says_why_and_can_be_cancelled) {
  const WorkOrder order = this->order("too-many", 2, line("true"));
  output_of("sbatch --exclusive --nodes=3 --ntasks=3 --output=/dev/null --wrap 'sleep 1000'");
  EXPECT_TRUE(wait_until([] { return !output_of("squeue --me --noheader --states=RUNNING").empty(); }));
  driver().submit(order);
  EXPECT_TRUE(wait_until([&] {
    return std::ranges::any_of(heard_.notes,
                               [](const std::string& note) { return note.ends_with("waits: Resources"); });
  }));
  driver().cancel(order.attempt, StopReason::kRequest, std::chrono::seconds(5));
  const auto result = wait_for_end(order.attempt);
  ASSERT_TRUE(result.error);
  EXPECT_EQ(result.error->message, "the job was terminated");
  EXPECT_THAT(result.lost, testing::IsEmpty());
  driver().acknowledge(order.attempt);
}

// Slurm's controller is restarted now and then: nothing may fail because it cannot be asked for a while.
TEST_F(SlurmJobs, an_outage_of_slurms_controller_is_told_and_waited_out) {
  const fs::path cluster = std::getenv("GYRE_TEST_SLURM");
  const WorkOrder before = this->order("before", 1, line("sleep 2; echo before"));
  const WorkOrder during = this->order("during", 1, line("echo during"));
  driver().submit(before);
  EXPECT_TRUE(wait_until([&] { return fs::exists(logs(before) / "stdout.txt"); }));
  int controller = 0;
  std::ifstream(cluster / "slurmctld.pid") >> controller;
  ASSERT_GT(controller, 1);
  ::kill(controller, SIGTERM);
  EXPECT_TRUE(wait_until([&] { return ::kill(controller, 0) != 0; }));
  driver().submit(during);
  EXPECT_TRUE(wait_until([&] {
    return std::ranges::any_of(heard_.notes,
                               [](const std::string& note) { return note.starts_with("Slurm does not answer"); });
  }));
  output_of("slurmctld -f " + std::string(std::getenv("SLURM_CONF")));
  for (const WorkOrder* order : {&before, &during}) {
    const auto result = wait_for_end(order->attempt);
    EXPECT_TRUE(result.succeeded()) << (result.error ? result.error->message : "");
    driver().acknowledge(order->attempt);
  }
  EXPECT_EQ(log(during, "stdout.txt"), "during\n");
}

// The site's own tools remain usable: who cancels the job in Slurm has ended it, and it must not come back.
TEST_F(SlurmJobs, a_job_that_somebody_cancels_in_slurm_fails_and_leaves_nothing) {
  const WorkOrder order = this->order("scancelled", 2, line("touch $AZ_BATCHAI_MOUNT_ROOT/share/runs; sleep 1000"));
  driver().submit(order);
  EXPECT_TRUE(wait_until([&] { return exists("runs"); }));
  output_of("scancel " + job_of(order));
  const auto result = wait_for_end(order.attempt);
  ASSERT_TRUE(result.error);
  EXPECT_EQ(result.error->code, "InternalError");
  EXPECT_THAT(result.error->message, testing::HasSubstr("CANCELLED"));
  EXPECT_THAT(result.lost, testing::IsEmpty());
  driver().acknowledge(order.attempt);
  expect_nothing_left(order);
}

// The service's own record is the truth when neither node program nor Slurm's job is there any more.
TEST_F(SlurmJobs, an_end_is_known_when_slurms_job_is_long_over) {
  const WorkOrder order = this->order("long-over", 1, line("echo done; exit 6"));
  driver().submit(order);
  EXPECT_TRUE(wait_until([&] { return heard_.ended.contains(order.attempt); }));
  output_of("scancel " + job_of(order));
  EXPECT_TRUE(wait_until([&] { return job_of(order).empty(); }));
  heard_ = {};
  fixture_->restart();
  driver().reattach({order});
  EXPECT_EQ(wait_for_end(order.attempt).exit_code, 6);
  driver().acknowledge(order.attempt);
}

// A service that dies between sbatch and its answer must neither lose the job nor start it twice.
TEST_F(SlurmJobs, a_job_that_was_submitted_twice_runs_once) {
  const WorkOrder order = this->order("twice", 1, line("echo ran >> $AZ_BATCHAI_MOUNT_ROOT/share/times; sleep 1"));
  driver().submit(order);
  EXPECT_TRUE(wait_until([&] { return exists("times"); }));
  const fs::path script = home() / "attempts" / order.attempt / "batch.sh";
  output_of("sbatch --output=/dev/null --job-name=gyre-" + order.attempt + " " + script.string());
  fixture_->restart();
  driver().reattach({order});
  EXPECT_TRUE(wait_for_end(order.attempt).succeeded());
  EXPECT_EQ(conformance::content_of(share_ / "times"), "ran\n");
  driver().acknowledge(order.attempt);
}

TEST_F(SlurmJobs, an_attempt_that_was_planned_and_never_submitted_starts_after_the_restart) {
  const WorkOrder order = this->order("planned", 1, line("echo hello"));
  fixture_->restart();
  driver().reattach({order});
  EXPECT_TRUE(wait_for_end(order.attempt).succeeded());
  EXPECT_EQ(log(order, "stdout.txt"), "hello\n");
  driver().acknowledge(order.attempt);
}

// Of a service whose records were restored from a backup, in a new folder.
TEST_F(SlurmJobs, jobs_of_another_service_are_left_alone_while_it_is_alive_and_cancelled_when_it_is_gone) {
  const WorkOrder order = this->order("stray", 1, line("touch $AZ_BATCHAI_MOUNT_ROOT/share/runs; sleep 1000"));
  driver().submit(order);
  EXPECT_TRUE(wait_until([&] { return exists("runs"); }));
  slurm::SlurmOptions options = fixture_->options();
  options.folder = fixture_->options().folder.parent_path() / "restored";
  slurm::SlurmDriver restored(options);
  EXPECT_THAT(restored.at_nodes({order}).known, testing::IsEmpty());
  EXPECT_EQ(restored.end_strays({"another"}, {}), "");
  EXPECT_EQ(restored.end_strays({"stray"}, {order.attempt}), "");
  EXPECT_THAT(restored.end_strays({"stray"}, {}), testing::HasSubstr("end that server"));
  EXPECT_FALSE(job_of(order).empty());
  EXPECT_EQ(driver().at_nodes({order}).known, std::set<std::string>{order.attempt});
  fixture_->end();
  // Not the fixture's, which listens to its driver.
  EXPECT_TRUE(conformance::wait_until([&] { return restored.end_strays({"stray"}, {}).empty(); }));
  EXPECT_EQ(job_of(order), "");
  EXPECT_TRUE(conformance::wait_until([&] { return fixture_->processes_of(order.attempt).empty(); }));
}

// Slurm shows scripts to their owners and to operators: the one secret in it is a key of this attempt's alone.
TEST_F(SlurmJobs, no_secret_but_the_attempts_key_is_in_what_slurm_gets_and_nothing_is_left_at_the_end) {
  const WorkOrder order = this->order("secretive", 2,
                                      R"("secrets": [{"name": "TOKEN", "value": "hunter2secret"}],)" +
                                          line("touch $AZ_BATCHAI_MOUNT_ROOT/share/runs; sleep 1000"));
  driver().submit(order);
  EXPECT_TRUE(wait_until([&] { return exists("runs"); }));
  std::string service_key = conformance::content_of(home() / "agents.key");
  while (service_key.ends_with('\n')) service_key.pop_back();
  ASSERT_EQ(service_key.size(), 64U);
  const std::string script = output_of("scontrol write batch_script " + job_of(order) + " -");
  EXPECT_THAT(script, testing::HasSubstr("--node " + order.attempt));
  const std::string key = script.substr(script.find("GYRE_KEY' || exit 1\n") + 20, 64);
  EXPECT_EQ(key.find_first_not_of("0123456789abcdef"), std::string::npos) << key;
  EXPECT_THAT(script, testing::Not(testing::HasSubstr("hunter2secret")));
  EXPECT_THAT(script, testing::Not(testing::HasSubstr(service_key)));
  // What others see of it.
  const std::string seen = output_of("scontrol show job " + job_of(order)) + output_of("cat /proc/[0-9]*/cmdline");
  for (const std::string& secret : {key, service_key, std::string("hunter2secret")}) {
    EXPECT_EQ(seen.find(secret), std::string::npos);
  }
  for (const fs::path& file : {home() / "agents.key", home() / "attempts"}) {
    struct stat status{};
    ASSERT_EQ(::stat(file.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0077U, 0U) << file;
  }
  driver().cancel(order.attempt, StopReason::kRequest, std::chrono::seconds(0));
  wait_for_end(order.attempt);
  driver().acknowledge(order.attempt);
  EXPECT_TRUE(wait_until([&] { return fs::is_empty(home() / "attempts"); }));
}

// A folder that users share is where it was: what one node writes there the others read, and it goes with the job.
TEST_F(SlurmJobs, a_shared_folder_that_is_named_is_that_of_the_jobs_nodes) {
  slurm::SlurmOptions options = fixture_->options();
  options.shared_folder = share_ / "gyre";
  fs::create_directories(options.shared_folder);
  fixture_->restart(options);
  driver().reattach({});
  const WorkOrder order =
      this->order("sharing", 2,
                  line("echo shared > $AZ_BATCHAI_SHARED_JOB_TEMP/file; ssh ${AZ_BATCH_HOST_LIST#*,} cat "
                       "$AZ_BATCHAI_SHARED_JOB_TEMP/file"));
  const auto result = run(order);
  EXPECT_TRUE(result.succeeded()) << (result.error ? result.error->message : "");
  EXPECT_EQ(log(order, "stdout.txt"), "shared\n");
  const fs::path own = fs::directory_iterator(options.shared_folder)->path();
  EXPECT_TRUE(wait_until([&] { return fs::is_empty(own); }));
}

}  // namespace
}  // namespace gyre::jobs::drivers
