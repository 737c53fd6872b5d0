// What goes wrong with one cluster (its driver hangs, a node does not start, a node was lost while it was deleted) is
// nobody else's: jobs of other clusters start and end as if nothing were, and questions are answered.
#include <sqlite3.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <thread>
#include <vector>

#include "gyre/base/effort_test_support.h"
#include "gyre/base/error.h"
#include "gyre/base/thread_annotations.h"
#include "gyre/jobs/drivers/make_driver.h"
#include "gyre/jobs/service/service_test_support.h"

namespace gyre::jobs::service {
namespace {

/// Sleeps in whatever it is asked to do, while it is told to, and refuses orders likewise.
class SleepyDriver final : public drivers::Driver {
 public:
  struct Moods {
    std::atomic<bool> asleep{false};
    std::atomic<int> sleepers{0};
    std::atomic<bool> refuses{false};
    std::atomic<int> taken_over{0};  ///< Attempts of a service before.
    /// It cannot even be made, until this is false; then it is made, or fails to be.
    std::atomic<bool> unmade{false};
    std::atomic<bool> fails{false};
    std::atomic<bool> is_lacking{false};
    std::atomic<int> alive{0};
  };

  SleepyDriver(std::unique_ptr<drivers::Driver> inner, Moods& moods) : inner_(std::move(inner)), moods_(moods) {
    ++moods_.alive;
  }
  ~SleepyDriver() override { --moods_.alive; }
  SleepyDriver(const SleepyDriver&) = delete;
  SleepyDriver& operator=(const SleepyDriver&) = delete;

  void check(const spec::ClusterSpec&) const override {
    if (moods_.is_lacking) throw Error(ErrorCode::kUnsupported, "there is no bed (buy one)");
  }

  orders::NodePlace place(const std::string& node, std::int64_t number) const override {
    return inner_->place(node, number);
  }
  int most_nodes() const override { return inner_->most_nodes(); }
  orders::WorkOrder completed(orders::WorkOrder order) const override { return inner_->completed(std::move(order)); }
  node::NodeFolders folders(const orders::WorkOrder& order) const override { return inner_->folders(order); }
  std::vector<drivers::Artifact> plan(const orders::WorkOrder& order) const override { return inner_->plan(order); }
  int fd() const override { return inner_->fd(); }
  drivers::AtNodes at_nodes(const std::vector<orders::WorkOrder>& asked) const override {
    return inner_->at_nodes(asked);
  }
  std::string end_strays(const std::set<std::string>& jobs, const std::set<std::string>& in_hand) override {
    return inner_->end_strays(jobs, in_hand);
  }
  bool sees_all_machines() const override { return inner_->sees_all_machines(); }

  void submit(const orders::WorkOrder& order) override {
    sleep();
    if (moods_.refuses) throw Error(ErrorCode::kIo, "the driver has no room");
    inner_->submit(order);
  }
  std::vector<drivers::Event> watch(Deadline deadline) override {
    sleep();
    return inner_->watch(deadline);
  }
  void cancel(const std::string& attempt, orders::StopReason reason, std::chrono::seconds grace) override {
    sleep(), inner_->cancel(attempt, reason, grace);
  }
  void reattach(const std::vector<orders::WorkOrder>& orders) override {
    moods_.taken_over += static_cast<int>(orders.size());
    sleep(), inner_->reattach(orders);
  }
  void acknowledge(const std::string& attempt) override { sleep(), inner_->acknowledge(attempt); }
  void release(const std::string& node) override { sleep(), inner_->release(node); }
  void retain(const std::set<std::string>& nodes) override { sleep(), inner_->retain(nodes); }

 private:
  void sleep() const {
    if (!moods_.asleep) return;
    ++moods_.sleepers;
    moods_.asleep.wait(true);
    --moods_.sleepers;
  }

  std::unique_ptr<drivers::Driver> inner_;
  Moods& moods_;
};

class IsolationTest : public JobServiceTest {
 protected:
  IsolationTest() {
    options_.make_driver = [this](const std::string& kind, const drivers::DriverOptions& options,
                                  const drivers::DriverSettings& settings) {
      if (kind != "slurm") return drivers::make_driver(kind, options, settings);
      moods_.unmade.wait(true);
      if (moods_.fails) throw Error(ErrorCode::kIo, "it cannot be made");
      drivers::DriverSettings own = settings;
      own.folder = settings.folder / "sleepy";
      fs::create_directories(own.folder);
      fs::permissions(own.folder, fs::perms(0711));
      return std::unique_ptr<drivers::Driver>(
          std::make_unique<SleepyDriver>(drivers::make_driver("local", {}, own), moods_));
    };
    restart();
  }
  ~IsolationTest() override {
    wake();
    service_.reset();
    if (fs::exists(options_.folder / "sleepy")) end_nodes(options_.folder / "sleepy");
  }

  void wake() {
    for (std::atomic<bool>* mood : {&moods_.asleep, &moods_.unmade}) {
      *mood = false;
      mood->notify_all();
    }
  }
  /// With the sleepy cluster, whose driver is being made until wake().
  void start_without_driver() {
    make_cluster(0);
    make_sleepy_cluster();
    service_.reset();
    moods_.unmade = true;
    start();
  }
  /// Waits for its attempt to be planned.
  void submit_to_sleepy(const std::string& name) {
    service_->submit(named(name), {job_of(1, "echo ran >> $AZ_BATCHAI_MOUNT_ROOT/share/times"), sleepy_, ""});
    EXPECT_TRUE(wait_until([&] { return events_of(name).find("attempt >planned") != std::string::npos; }));
  }
  void make_sleepy_cluster() {
    spec::ClusterSpec cluster = cluster_of(spec::ManualScale{1});
    cluster.gyre.driver = "slurm";
    service_->create_cluster(sleepy_, cluster);
  }
  /// From submission to end, in milliseconds, one after the other.
  std::vector<double> times_of_jobs(const std::string& name, int count) {
    std::vector<double> times;
    for (int i = 0; i < count; ++i) {
      const auto begin = SteadyClock::now();
      const std::string job = fmt::format("{}-{}", name, i);
      submit(job, job_of(1, "true"));
      EXPECT_EQ(ended(job).execution_state, ExecutionState::kSucceeded) << events_of(job);
      times.push_back(std::chrono::duration<double, std::milli>(SteadyClock::now() - begin).count());
    }
    std::ranges::sort(times);
    return times;
  }

  const resources::ClusterName sleepy_{"w", "sleepy"};
  SleepyDriver::Moods moods_;
};

// Its engine was kept, with its connections, until the service ended.
TEST_F(IsolationTest, nothing_stays_of_the_driver_of_a_cluster_that_is_refused) {
  moods_.is_lacking = true;
  try {
    make_sleepy_cluster();
    FAIL() << "it was made";
  } catch (const resources::ServiceError& error) {
    EXPECT_EQ(error.name(), "ClusterNotUsable");
    EXPECT_STREQ(error.what(), "no job could start on cluster 'sleepy': there is no bed (buy one)");
  }
  EXPECT_EQ(moods_.alive, 0);
  moods_.is_lacking = false;
  make_sleepy_cluster();
  EXPECT_EQ(moods_.alive, 1);
}

TEST_F(IsolationTest, a_driver_that_sleeps_costs_the_jobs_of_another_cluster_nothing) {
  const int count = is_long_test() ? 200 : 10;
  make_cluster(1);
  make_sleepy_cluster();
  times_of_jobs("first", 2);
  const std::vector<double> awake = times_of_jobs("awake", count);
  moods_.asleep = true;
  service_->submit(named("sleeps"), {job_of(1, "true"), sleepy_, ""});
  EXPECT_TRUE(wait_until([&] { return moods_.sleepers > 0; }));
  const std::vector<double> asleep = times_of_jobs("asleep", count);
  EXPECT_EQ(moods_.sleepers, 1);
  const auto p99 = [&](const std::vector<double>& times) { return times[times.size() * 99 / 100]; };
  std::printf("%d jobs, from submission to end: median %.0f ms, p99 %.0f ms; while another driver sleeps: %.0f, %.0f\n",
              count, awake[awake.size() / 2], p99(awake), asleep[asleep.size() / 2], p99(asleep));
  // Of the fastest, because the machine may have other work.
  EXPECT_LT(asleep.front(), 1.5 * awake.front() + 50);
  EXPECT_EQ(state_of("sleeps"), ExecutionState::kQueued);
  wake();
  EXPECT_EQ(ended("sleeps").execution_state, ExecutionState::kSucceeded);
}

TEST_F(IsolationTest, a_service_starts_beside_a_driver_that_hangs_and_says_which_clusters_wait_for_it) {
  make_cluster(1);
  make_sleepy_cluster();
  service_.reset();
  moods_.asleep = true;
  start();
  submit("here", job_of(1, "true"));
  EXPECT_EQ(ended("here").execution_state, ExecutionState::kSucceeded);
  EXPECT_TRUE(wait_until([&] { return !service_->cluster(sleepy_).errors.empty(); }));
  EXPECT_THAT(service_->cluster(sleepy_).errors[0].message, HasSubstr("has not answered for 1"));
  service_->submit(named("waits"), {job_of(1, "true"), sleepy_, ""});
  EXPECT_THAT(service_->why(named("waits")).message, HasSubstr("its cluster cannot be used"));
  wake();
  EXPECT_EQ(ended("waits").execution_state, ExecutionState::kSucceeded);
}

// It stayed `terminating`, and its cluster could not be deleted, for as long as the driver was away.
TEST_F(IsolationTest, a_job_and_a_cluster_that_do_not_answer_can_be_got_rid_of_and_what_may_run_is_said) {
  make_cluster(0);
  make_sleepy_cluster();
  service_->submit(named("stuck"),
                   {job_of(1, "echo $$ > $AZ_BATCHAI_MOUNT_ROOT/share/pid; exec sleep 1000"), sleepy_, ""});
  EXPECT_TRUE(wait_until([&] { return !content_of(share_ / "pid").empty(); }));
  const auto refusal = [](const auto& call) -> std::string {
    try {
      call();
    } catch (const resources::ServiceError& error) {
      return error.name();
    }
    return "it was accepted";
  };
  EXPECT_EQ(refusal([&] { service_->terminate_without_nodes(named("stuck")); }), "ClusterUsable");
  moods_.asleep = true;
  EXPECT_TRUE(wait_until([&] { return !service_->cluster(sleepy_).errors.empty(); }));
  EXPECT_EQ(service_->terminate(named("stuck")).execution_state, ExecutionState::kTerminating);
  EXPECT_THAT(service_->why(named("stuck")).remedies.back(), HasSubstr("gyre job stop --force"));
  EXPECT_EQ(refusal([&] { service_->delete_cluster(sleepy_); }), "ClusterInUse");
  const std::string node = service_->nodes(sleepy_).front().name;
  const resources::Job job = service_->terminate_without_nodes(named("stuck"));
  EXPECT_EQ(job.execution_state, ExecutionState::kFailed);
  ASSERT_EQ(job.execution_info.errors.size(), 1U);
  EXPECT_EQ(job.execution_info.errors[0].code, "JobLeftRunning");
  EXPECT_THAT(job.execution_info.errors[0].message, HasSubstr("may still run on " + node));
  EXPECT_EQ(refusal([&] { service_->retry(named("stuck")); }), "JobLeftRunning");
  service_->delete_cluster(sleepy_);
  EXPECT_TRUE(wait_until([&] { return service_->clusters("w", {}).items.size() == 1; }));
  const int pid = std::stoi(content_of(share_ / "pid"));
  EXPECT_EQ(::kill(pid, 0), 0);
  wake();
  EXPECT_TRUE(wait_until([&] { return ::kill(pid, 0) != 0; }));
  service_->delete_job(named("stuck"));
  EXPECT_TRUE(wait_until([&] { return service_->jobs("w", {}, {}).items.empty(); }));
}

// It was handed over as if a service before this one had begun it, and refused after that: its record had ended, it ran
// all the same, and the next job of the node failed because the node was busy.
TEST_F(IsolationTest, an_attempt_that_is_planned_before_the_driver_is_ready_and_then_refused_never_runs) {
  start_without_driver();
  moods_.refuses = true;
  submit_to_sleepy("refused");
  wake();
  const resources::Job job = ended("refused");
  ASSERT_EQ(job.execution_info.errors.size(), 1U);
  EXPECT_THAT(job.execution_info.errors[0].message, HasSubstr("the driver has no room"));
  EXPECT_EQ(moods_.taken_over, 0);
  moods_.refuses = false;
  submit_to_sleepy("next");
  EXPECT_EQ(ended("next").execution_state, ExecutionState::kSucceeded) << events_of("next");
  EXPECT_EQ(content_of(share_ / "times"), "ran\n");
}

// A driver that had taken it over refused it afterwards, and what it had begun ran on without a record.
TEST_F(IsolationTest, an_attempt_that_a_service_before_this_one_had_planned_is_handed_over_once) {
  start_without_driver();
  moods_.fails = true;
  submit_to_sleepy("job");
  wake();
  service_.reset();
  moods_.fails = false;
  moods_.refuses = true;
  start();
  EXPECT_EQ(ended("job").execution_state, ExecutionState::kSucceeded) << events_of("job");
  EXPECT_EQ(moods_.taken_over, 1);
  EXPECT_EQ(content_of(share_ / "times"), "ran\n");
}

// The start of a node program was waited for, for up to a minute, by everybody.
TEST_F(IsolationTest, a_node_that_starts_slowly_holds_up_its_own_job_only) {
  service_.reset();
  const fs::path go = folder_.path() / "go";
  options_.gyre_program = (folder_.path() / "slow-gyre").string();
  drivers::conformance::write_file(
      options_.gyre_program,
      fmt::format(
          "#!/bin/sh\ncase \"$*\" in *slow*|*node-1-*) until [ -e {} ]; do sleep 0.05; done;; esac\nexec {} \"$@\"\n",
          go.string(), GYRE_PROGRAM));
  start();
  const resources::ClusterName slow{"w", "slow"};
  service_->create_cluster(slow, cluster_of(spec::ManualScale{1}));
  make_cluster(1);
  service_->submit(named("slow"), {job_of(1, "true"), slow, ""});
  EXPECT_TRUE(wait_until([&] { return state_of("slow") == ExecutionState::kRunning; }));
  submit("quick", job_of(1, "true"));
  EXPECT_EQ(ended("quick").execution_state, ExecutionState::kSucceeded);
  EXPECT_EQ(state_of("slow"), ExecutionState::kRunning);
  std::ofstream(go) << "go";
  EXPECT_EQ(ended("slow").execution_state, ExecutionState::kSucceeded) << events_of("slow");
}

// The scheduler wanted another node in the place of the lost one, which a cluster that is deleted does not get; nothing
// went on from then on.
TEST_F(IsolationTest, a_cluster_that_has_lost_a_node_is_deleted_and_holds_up_nobody) {
  make_cluster(2);
  EXPECT_TRUE(wait_until([&] { return service_->nodes(kCluster).size() == 2; }));
  service_.reset();
  sqlite3* catalog = nullptr;
  ASSERT_EQ(sqlite3_open((options_.folder / "catalog.db").c_str(), &catalog), SQLITE_OK);
  EXPECT_EQ(sqlite3_exec(catalog,
                         "UPDATE nodes SET state = 'lost', problem = 'it burns' WHERE id = 1; "
                         "UPDATE clusters SET provisioning_state = 'deleting'",
                         nullptr, nullptr, nullptr),
            SQLITE_OK);
  sqlite3_close(catalog);
  start();
  const resources::ClusterName other{"w", "other"};
  service_->create_cluster(other, cluster_of(spec::ManualScale{1}));
  service_->submit(named("here"), {job_of(1, "true"), other, ""});
  EXPECT_EQ(ended("here").execution_state, ExecutionState::kSucceeded);
  EXPECT_TRUE(wait_until([&] { return service_->clusters("w", {}).items.size() == 1; }));
}

TEST_F(IsolationTest, questions_are_answered_while_a_change_is_being_written) {
  make_cluster(1);
  submit("job", job_of(1, "true"));
  ended("job");
  service_.reset();
  std::atomic<bool> holds{false};
  std::atomic<bool> held{false};
  options_.wall_clock = [&] {
    if (holds) {
      held = true;
      holds.wait(true);
    }
    return wall_clock_us();
  };
  start();
  holds = true;
  std::thread writer([&] { service_->create_experiment({"w", "slow"}); });
  EXPECT_TRUE(wait_until([&] { return held.load(); }));
  EXPECT_EQ(state_of("job"), ExecutionState::kSucceeded);
  EXPECT_EQ(service_->jobs("w", {}, {}).items.size(), 1U);
  EXPECT_EQ(service_->cluster(kCluster).name.cluster, "c");
  EXPECT_EQ(service_->experiments("w", {}).items.size(), 1U);
  EXPECT_FALSE(service_->events({"w", "", "", ""}, 0, 10).empty());
  holds = false;
  holds.notify_all();
  writer.join();
  EXPECT_EQ(service_->experiments("w", {}).items.size(), 2U);
  service_.reset();
}

}  // namespace
}  // namespace gyre::jobs::service
