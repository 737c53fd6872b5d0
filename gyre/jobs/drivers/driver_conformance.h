#pragma once

// Behaviour that every driver must show, written against the interface alone. A driver's test gives the suite a fixture
// and instantiates it:  INSTANTIATE_TYPED_TEST_SUITE_P(Local, DriverConformance, LocalFixture);

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "gyre/base/bytes.h"
#include "gyre/base/checksum.h"
#include "gyre/base/clock.h"
#include "gyre/base/random.h"
#include "gyre/jobs/drivers/conformance_fixture.h"
#include "gyre/jobs/drivers/driver.h"
#include "gyre/jobs/drivers/test_support.h"
#include "gyre/jobs/spec/parse.h"

namespace gyre::jobs::drivers {

TYPED_TEST_SUITE_P(DriverConformance);

// gtest makes a class of each test's name. NOLINTBEGIN(readability-identifier-naming)

// The plainest job of all: one line on one node.
TYPED_TEST_P(DriverConformance, a_job_succeeds_and_its_logs_are_where_they_belong) {
  const WorkOrder order = this->order("hello", 1, this->line("echo out; echo error >&2; echo last"));
  const auto result = this->run(order);
  EXPECT_TRUE(result.succeeded()) << (result.error ? result.error->message : "");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(this->log(order, "stdout.txt"), "out\nlast\n");
  EXPECT_EQ(this->log(order, "stderr.txt"), "error\n");
  EXPECT_TRUE(std::filesystem::exists(this->logs(order) / "execution.log"));
  EXPECT_EQ(result.log_folder, this->logs(order));
  EXPECT_LE(result.started_us, result.ended_us);
  this->expect_nothing_left(order);
}

// No folder that the machines share: the nodes send what they have written, before the end is told.
TYPED_TEST_P(DriverConformance, logs_that_lie_on_no_mount_come_to_the_service_from_all_nodes) {
  const WorkOrder order = this->order_without_mount(
      "sent", 2, R"("jobPreparation": {"commandLine": "echo prepared"},)" + this->line("echo out; echo error >&2"));
  const auto result = this->run(order);
  EXPECT_TRUE(result.succeeded()) << (result.error ? result.error->message : "");
  EXPECT_EQ(this->received_log(order, "stdout.txt"), "out\n");
  EXPECT_EQ(this->received_log(order, "stderr.txt"), "error\n");
  for (const auto& node : order.nodes) {
    EXPECT_EQ(this->received_log(order, "stdout-job_prep-" + node.id + ".txt"), "prepared\n");
    EXPECT_NE(this->received_log(order, "execution-" + node.id + ".log"), "");
  }
}

TYPED_TEST_P(DriverConformance, logs_go_on_at_the_byte_after_a_restart_of_the_service_and_of_a_node_program) {
  const WorkOrder order = this->order_without_mount(
      "resumed", 1,
      this->line("for i in $(seq 1 400); do echo line $i; if [ $((i % 20)) = 0 ]; then sleep 0.05; fi; done"));
  this->driver().submit(order);
  EXPECT_TRUE(this->wait_until([&] { return this->received_log(order, "stdout.txt") != ""; }));
  this->fixture_->restart();
  this->driver().reattach({order});
  this->fixture_->kill_program(order.nodes[0].id);
  const auto result = this->wait_for_end(order.attempt);
  this->driver().acknowledge(order.attempt);
  EXPECT_TRUE(result.succeeded()) << (result.error ? result.error->message : "");
  std::string expected;
  for (int i = 1; i <= 400; ++i) expected += fmt::format("line {}\n", i);
  EXPECT_EQ(this->received_log(order, "stdout.txt"), expected);
}

TYPED_TEST_P(DriverConformance, a_failing_command_gives_its_exit_code_and_one_error) {
  const auto result = this->run(this->order("fails", 1, this->line("echo before; exit 7")));
  EXPECT_EQ(result.exit_code, 7);
  ASSERT_TRUE(result.error);
  EXPECT_EQ(result.error->code, "JobFailed");
}

TYPED_TEST_P(DriverConformance, a_missing_program_is_a_job_that_failed_with_127) {
  const auto result = this->run(this->order("missing", 1, this->line("/no/such/program --flag")));
  EXPECT_EQ(result.exit_code, 127);
  ASSERT_TRUE(result.error);
  EXPECT_EQ(result.error->code, "JobFailed");
}

// Every node unpacks what the user has uploaded, before preparation, and for the job's user.
TYPED_TEST_P(DriverConformance, the_jobs_code_is_unpacked_on_every_node_and_it_runs_there) {
  conformance::write_file(this->folder_.path() / "code/lib/say.sh", "echo $1 in $(basename $(pwd))\n");
  const std::filesystem::path archive = this->folder_.path() / "code.tar";
  ASSERT_EQ(
      std::system(fmt::format("tar -cf {} -C {}/code .", archive.string(), this->folder_.path().string()).c_str()), 0);
  WorkOrder order =
      this->order("code", 2,
                  R"("jobPreparation": {"commandLine": "sh lib/say.sh prepared > said"},)" +
                      this->line("cat said; sh lib/say.sh job; echo $AZ_BATCHAI_JOB_WORK_DIR > $AZ_BATCHAI_"
                                 "MOUNT_ROOT/share/place"));
  order.code_archive = archive.string();
  order.code_sha256 = hex(sha256(as_bytes(conformance::content_of(archive))));
  const auto result = this->run(order);
  EXPECT_TRUE(result.succeeded()) << (result.error ? result.error->message : "");
  EXPECT_EQ(this->log(order, "stdout.txt"), "prepared in code\njob in code\n");
  EXPECT_TRUE(conformance::content_of(this->share_ / "place").ends_with("jobs/code/code\n"));
  this->expect_nothing_left(order);
}

TYPED_TEST_P(DriverConformance, code_that_was_exchanged_fails_the_job_before_it_starts) {
  WorkOrder order = this->order("exchanged", 1, this->line("touch $AZ_BATCHAI_MOUNT_ROOT/share/ran"));
  order.code_archive = (this->folder_.path() / "code.tar").string();
  order.code_sha256 = std::string(64, '0');
  conformance::write_file(order.code_archive, "not what was uploaded");
  const auto result = this->run(order);
  ASSERT_TRUE(result.error);
  EXPECT_THAT(result.error->message, testing::HasSubstr("is not what was uploaded"));
  EXPECT_FALSE(this->exists("ran"));
}

// Preparation runs on every node before the job starts on any, and the job sees the same variables.
TYPED_TEST_P(DriverConformance, all_nodes_are_prepared_before_the_job_starts) {
  const WorkOrder order = this->order(
      "prepared", 2,
      R"("jobPreparation": {"commandLine": "sleep 0.2; echo $NAME > $AZ_BATCHAI_MOUNT_ROOT/share/prep-$AZ_BATCH_NODE_ID"},
         "environmentVariables": [{"name": "NAME", "value": "value of $AZ_BATCHAI_JOB_NAME"}],)" +
          this->line("cd $AZ_BATCHAI_MOUNT_ROOT/share; cat prep-*"));
  const auto result = this->run(order);
  EXPECT_TRUE(result.succeeded()) << (result.error ? result.error->message : "");
  EXPECT_EQ(this->log(order, "stdout.txt"), "value of prepared\nvalue of prepared\n");
  for (const auto& node : order.nodes) {
    EXPECT_TRUE(std::filesystem::exists(this->logs(order) / ("stdout-job_prep-" + node.id + ".txt")));
    EXPECT_TRUE(std::filesystem::exists(this->logs(order) / ("execution-" + node.id + ".log")));
  }
}

TYPED_TEST_P(DriverConformance, a_failed_preparation_fails_the_job_which_never_starts) {
  const std::string second = this->fixture_->places(2)[1].id;
  const WorkOrder order = this->order("unprepared", 2,
                                      R"("jobPreparation": {"commandLine": "[ $AZ_BATCH_NODE_ID != )" + second +
                                          R"( ] || { echo no room >&2; exit 3; }"},)" +
                                          this->line("touch $AZ_BATCHAI_MOUNT_ROOT/share/started"));
  const auto result = this->run(order);
  EXPECT_EQ(result.exit_code, 3);
  ASSERT_TRUE(result.error);
  EXPECT_EQ(result.error->code, "JobPreparationFailed");
  EXPECT_FALSE(this->exists("started"));
  EXPECT_EQ(this->log(order, "stderr-job_prep-" + second + ".txt"), "no room\n");
}

// Batch AI's nodes had the same paths: scripts expand them on the first node and use them on the others.
TYPED_TEST_P(DriverConformance, what_the_first_node_expands_is_there_on_the_others) {
  conformance::write_file(this->share_ / "data/input", "the input\n");
  WorkOrder order = this->order(
      "same-paths", 2,
      R"("mountVolumes": {"fileServers": [{"fileServer": {"id": "x"}, "relativeMountPath": "nfs"}]},
         "inputDirectories": [{"id": "DATA", "path": "$AZ_BATCHAI_MOUNT_ROOT/share/data"}],)" +
          this->line((TypeParam::kNodesShareAFolder
                          ? "echo shared > $AZ_BATCHAI_SHARED_JOB_TEMP/file; "
                          : "ssh ${AZ_BATCH_HOST_LIST#*,} echo shared '>' $AZ_BATCHAI_SHARED_JOB_TEMP/file; ") +
                     std::string("ssh ${AZ_BATCH_HOST_LIST#*,} cat "
                                 "$AZ_BATCHAI_INPUT_DATA/input $AZ_BATCHAI_JOB_MOUNT_ROOT/nfs/input "
                                 "$AZ_BATCHAI_SHARED_JOB_TEMP/file")));
  order.cluster.gyre.mounts["nfs"] = (this->share_ / "data").string();
  const auto result = this->run(order);
  EXPECT_TRUE(result.succeeded()) << (result.error ? result.error->message : "") << this->log(order, "stderr.txt");
  EXPECT_EQ(this->log(order, "stdout.txt"), "the input\nthe input\nshared\n");
}

// Ranks of all nodes started in the first node's folder, without the files that their own preparation had made.
TYPED_TEST_P(DriverConformance, ranks_start_in_the_folder_of_their_own_node) {
  const WorkOrder order = this->order("own-folders", 2,
                                      R"("jobPreparation": {"commandLine": "echo $AZ_BATCH_NODE_ID > name"},
         "gyreSettings": {"program": ["cat", "name"]})");
  const auto result = this->run(order);
  EXPECT_TRUE(result.succeeded()) << (result.error ? result.error->message : "") << this->log(order, "stderr.txt");
  for (int node = 0; node < 2; ++node) {
    const std::string line = "[" + std::to_string(node) + "] " + order.nodes[static_cast<std::size_t>(node)].id + "\n";
    EXPECT_THAT(this->log(order, "stdout.txt"), testing::HasSubstr(line));
  }
}

// The sum of a job's output must arrive, to the last line, however fast it ends.
TYPED_TEST_P(DriverConformance, logs_are_complete_to_the_last_line) {
  const WorkOrder order = this->order("chatty", 1, this->line("seq 1 200000; printf 'the end'"));
  EXPECT_TRUE(this->run(order).succeeded());
  const std::string text = this->log(order, "stdout.txt");
  EXPECT_EQ(std::ranges::count(text, '\n'), 200'000);
  EXPECT_TRUE(text.ends_with("200000\nthe end"));
}

TYPED_TEST_P(DriverConformance, secrets_reach_the_job_and_no_log) {
  const WorkOrder order =
      this->order("secretive", 1,
                  R"("secrets": [{"name": "TOKEN", "value": "hunter2secret"}],)" +
                      this->line("echo [$TOKEN] ${#TOKEN}; seq 1 1000; echo hunter2; echo $TOKEN >&2"));
  EXPECT_TRUE(this->run(order).succeeded());
  const std::string text = this->log(order, "stdout.txt");
  EXPECT_TRUE(text.starts_with("[***] 13\n1\n")) << text.substr(0, 100);
  EXPECT_TRUE(text.ends_with("1000\nhunter2\n"));
  EXPECT_EQ(this->log(order, "stderr.txt"), "***\n");
}

// In each phase: before and while it prepares, while it runs.
TYPED_TEST_P(DriverConformance, a_job_is_cancelled_in_every_phase) {
  const std::string prepare =
      R"("jobPreparation": {"commandLine": "touch $AZ_BATCHAI_MOUNT_ROOT/share/preparing; sleep 1000"},)";
  const WorkOrder at_once = this->order("at-once", 2, prepare + this->line("true"));
  const WorkOrder preparing = this->order("preparing", 2, prepare + this->line("true"));
  const WorkOrder running =
      this->order("running", 2, this->line("touch $AZ_BATCHAI_MOUNT_ROOT/share/runs; sleep 1000 & wait"));
  this->driver().submit(at_once);
  this->driver().cancel(at_once.attempt, StopReason::kRequest, std::chrono::seconds(1));
  const auto cancel_when = [&](const WorkOrder& order, const std::string& file) {
    this->driver().submit(order);
    EXPECT_TRUE(this->wait_until([&] { return this->exists(file); }));
    this->driver().cancel(order.attempt, StopReason::kRequest, std::chrono::seconds(1));
  };
  for (const WorkOrder* order : {&at_once, &preparing, &running}) {
    if (order == &preparing) {
      std::filesystem::remove(this->share_ / "preparing");
      cancel_when(*order, "preparing");
    }
    if (order == &running) cancel_when(*order, "runs");
    const auto result = this->wait_for_end(order->attempt);
    ASSERT_TRUE(result.error) << order->attempt;
    EXPECT_EQ(result.error->code, "JobFailed");
    EXPECT_NE(result.exit_code, 0);
    this->driver().acknowledge(order->attempt);
    this->expect_nothing_left(*order);
  }
}

TYPED_TEST_P(DriverConformance, a_job_that_has_ended_is_not_changed_by_a_cancel) {
  const WorkOrder order = this->order("over", 1, this->line("true"));
  this->driver().submit(order);
  EXPECT_TRUE(this->wait_for_end(order.attempt).succeeded());
  this->driver().cancel(order.attempt, StopReason::kRequest, std::chrono::seconds(1));
  this->hear(Deadline::after(std::chrono::milliseconds(200)));
  EXPECT_TRUE(this->heard_.ended[order.attempt].succeeded());
}

// Nothing may run twice: a second submit of the same attempt is the same attempt.
TYPED_TEST_P(DriverConformance, an_attempt_submitted_twice_runs_once) {
  const WorkOrder order =
      this->order("once", 1, this->line("echo ran >> $AZ_BATCHAI_MOUNT_ROOT/share/times; sleep 0.3"));
  this->driver().submit(order);
  this->driver().submit(order);
  EXPECT_TRUE(this->wait_for_end(order.attempt).succeeded());
  EXPECT_EQ(conformance::content_of(this->share_ / "times"), "ran\n");
}

TYPED_TEST_P(DriverConformance, the_wall_clock_limit_ends_a_job) {
  const WorkOrder order =
      this->order("too-long", 1, R"("constraints": {"maxWallClockTime": "PT1S"},)" + this->line("sleep 1000"));
  const auto result = this->run(order);
  ASSERT_TRUE(result.error);
  EXPECT_EQ(result.error->code, "JobFailed");
  EXPECT_THAT(result.error->message, testing::HasSubstr("maxWallClockTime"));
  this->expect_nothing_left(order);
}

// A killed node program must cost the job nothing: no output, no exit code, no second start.
TYPED_TEST_P(DriverConformance, a_job_goes_on_when_a_node_program_is_killed) {
  const WorkOrder order = this->order(
      "goes-on", 2,
      this->line("echo begun >> $AZ_BATCHAI_MOUNT_ROOT/share/begun; until [ -e $AZ_BATCHAI_MOUNT_ROOT/share/go ]; do "
                 "sleep 0.02; done; echo after; exit 4"));
  this->driver().submit(order);
  EXPECT_TRUE(this->wait_until([&] { return this->exists("begun"); }));
  for (const auto& node : order.nodes) this->fixture_->kill_program(node.id);
  this->hear(Deadline::after(std::chrono::milliseconds(300)));
  std::ofstream(this->share_ / "go") << "go";
  const auto result = this->wait_for_end(order.attempt);
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_EQ(this->log(order, "stdout.txt"), "after\n");
  EXPECT_EQ(conformance::content_of(this->share_ / "begun"), "begun\n");
  this->expect_nothing_left(order);
}

TYPED_TEST_P(DriverConformance, a_restarted_service_finds_its_attempts_again) {
  const WorkOrder order = this->order(
      "found", 2,
      this->line("echo begun >> $AZ_BATCHAI_MOUNT_ROOT/share/begun; until [ -e $AZ_BATCHAI_MOUNT_ROOT/share/go ]; do "
                 "sleep 0.02; done; echo after"));
  this->driver().submit(order);
  EXPECT_TRUE(this->wait_until([&] { return this->exists("begun"); }));
  this->fixture_->restart();
  this->driver().reattach({order});
  std::ofstream(this->share_ / "go") << "go";
  EXPECT_TRUE(this->wait_for_end(order.attempt).succeeded());
  EXPECT_EQ(conformance::content_of(this->share_ / "begun"), "begun\n");
  EXPECT_EQ(this->log(order, "stdout.txt"), "after\n");
}

// The end came while nobody listened: the record on the node's disk is the truth.
TYPED_TEST_P(DriverConformance, an_end_that_nobody_heard_of_is_told_after_the_restart) {
  const WorkOrder order = this->order("unheard", 1, this->line("exit 9"));
  this->driver().submit(order);
  EXPECT_TRUE(this->wait_until([&] { return this->heard_.ended.contains(order.attempt); }));
  this->fixture_->restart();
  this->heard_ = {};
  this->driver().reattach({order});
  EXPECT_EQ(this->wait_for_end(order.attempt).exit_code, 9);
}

TYPED_TEST_P(DriverConformance, a_lost_node_ends_the_attempt_on_the_others) {
  const WorkOrder order = this->order("lost", 2, this->line("touch $AZ_BATCHAI_MOUNT_ROOT/share/runs; sleep 1000"));
  this->driver().submit(order);
  EXPECT_TRUE(this->wait_until([&] { return this->exists("runs"); }));
  this->fixture_->lose_node(order.nodes[1].id);
  const auto result = this->wait_for_end(order.attempt);
  ASSERT_TRUE(result.error);
  EXPECT_EQ(result.error->code, "InternalError") << result.error->message;
  EXPECT_THAT(result.lost, testing::ElementsAre(order.nodes[1].id));
  this->driver().acknowledge(order.attempt);
  this->expect_nothing_left(order);
}

// As long as it prepares there are no processes of the job yet, but there is an attempt to be ended.
TYPED_TEST_P(DriverConformance, a_node_that_is_lost_while_it_prepares_ends_the_attempt_too) {
  const WorkOrder order = this->order(
      "lost-early", 2,
      R"("jobPreparation": {"commandLine": "touch $AZ_BATCHAI_MOUNT_ROOT/share/prep-$AZ_BATCH_NODE_ID; sleep 1000"},)" +
          this->line("touch $AZ_BATCHAI_MOUNT_ROOT/share/runs"));
  this->driver().submit(order);
  EXPECT_TRUE(this->wait_until([&] { return this->exists("prep-" + order.nodes[1].id); }));
  this->fixture_->lose_node(order.nodes[1].id);
  const auto result = this->wait_for_end(order.attempt);
  ASSERT_TRUE(result.error);
  EXPECT_EQ(result.error->code, "InternalError") << result.error->message;
  EXPECT_THAT(result.lost, testing::ElementsAre(order.nodes[1].id));
  EXPECT_FALSE(this->exists("runs"));
  this->driver().acknowledge(order.attempt);
  this->expect_nothing_left(order);
}

// While it is on its way to the nodes, and while they prepare; other tests restart later.
TYPED_TEST_P(DriverConformance, a_service_that_restarts_early_finds_its_attempts_again) {
  for (const bool preparing : {false, true}) {
    const std::string name = preparing ? "preparing" : "submitted";
    const std::string file = "$AZ_BATCHAI_MOUNT_ROOT/share/" + name;
    const std::string preparation = fmt::format("echo prepared >> {0}.times; touch {0}.prep; sleep 0.5", file);
    const WorkOrder order = this->order(name, 2,
                                        fmt::format(R"("jobPreparation": {{"commandLine": "{}"}}, {})", preparation,
                                                    this->line(fmt::format("echo ran >> {}.times", file))));
    this->driver().submit(order);
    if (preparing) {
      EXPECT_TRUE(this->wait_until([&] { return this->exists(name + ".prep"); }));
    }
    this->fixture_->restart();
    this->driver().reattach({order});
    const auto result = this->wait_for_end(order.attempt);
    EXPECT_TRUE(result.succeeded()) << (result.error ? result.error->message : "");
    EXPECT_EQ(conformance::content_of(this->share_ / (name + ".times")), "prepared\nprepared\nran\n");
    this->driver().acknowledge(order.attempt);
    this->expect_nothing_left(order);
  }
}

// At whatever instruction a node program or the service is killed: no job is lost, none runs twice, no end is told
// wrongly.
TYPED_TEST_P(DriverConformance, kills_of_node_programs_and_of_the_service_at_random_points_change_nothing) {
  const auto seed = static_cast<std::uint64_t>(wall_clock_us());
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  Random random(seed);
  constexpr int kJobs = 8;
  for (int i = 0; i < kJobs; ++i) {
    const std::string name = "job-" + std::to_string(i);
    const WorkOrder order = this->order(name, 2,
                                        R"("jobPreparation": {"commandLine": "sleep 0.1"},)" +
                                            this->line("echo ran >> $AZ_BATCHAI_MOUNT_ROOT/share/" + name +
                                                       "; sleep 0.2; echo last; exit " + std::to_string(i % 3)));
    this->driver().submit(order);
    const int kills = 1 + static_cast<int>(random.below(3));
    for (int kill = 0; kill < kills && !this->heard_.ended.contains(order.attempt); ++kill) {
      this->hear(Deadline::after(std::chrono::milliseconds(random.below(150))));
      const auto target = random.below(3);
      if (target < 2) this->fixture_->kill_program(order.nodes[target].id);
      if (target == 2) {
        this->fixture_->restart();
        this->driver().reattach({order});
      }
    }
    const auto result = this->wait_for_end(order.attempt);
    EXPECT_EQ(result.exit_code, i % 3) << name << ": " << (result.error ? result.error->message : "");
    EXPECT_EQ(conformance::content_of(this->share_ / name), "ran\n");
    EXPECT_EQ(this->log(order, "stdout.txt"), "last\n");
    this->driver().acknowledge(order.attempt);
    this->expect_nothing_left(order);
  }
}

TYPED_TEST_P(DriverConformance, what_a_job_leaves_behind_is_removed_and_told) {
  const WorkOrder order =
      this->order("messy", 1, this->line("setsid sleep 1000 > /dev/null 2>&1 < /dev/null & sleep 0.3; echo done"));
  EXPECT_TRUE(this->run(order).succeeded());
  this->expect_nothing_left(order);
}

// NOLINTEND(readability-identifier-naming)

REGISTER_TYPED_TEST_SUITE_P(
    DriverConformance, a_job_succeeds_and_its_logs_are_where_they_belong,
    logs_that_lie_on_no_mount_come_to_the_service_from_all_nodes,
    logs_go_on_at_the_byte_after_a_restart_of_the_service_and_of_a_node_program,
    a_failing_command_gives_its_exit_code_and_one_error, a_missing_program_is_a_job_that_failed_with_127,
    the_jobs_code_is_unpacked_on_every_node_and_it_runs_there, code_that_was_exchanged_fails_the_job_before_it_starts,
    all_nodes_are_prepared_before_the_job_starts, a_failed_preparation_fails_the_job_which_never_starts,
    what_the_first_node_expands_is_there_on_the_others, ranks_start_in_the_folder_of_their_own_node,
    logs_are_complete_to_the_last_line, secrets_reach_the_job_and_no_log, a_job_is_cancelled_in_every_phase,
    a_job_that_has_ended_is_not_changed_by_a_cancel, an_attempt_submitted_twice_runs_once,
    the_wall_clock_limit_ends_a_job, a_job_goes_on_when_a_node_program_is_killed,
    a_restarted_service_finds_its_attempts_again, an_end_that_nobody_heard_of_is_told_after_the_restart,
    a_lost_node_ends_the_attempt_on_the_others, a_node_that_is_lost_while_it_prepares_ends_the_attempt_too,
    a_service_that_restarts_early_finds_its_attempts_again,
    kills_of_node_programs_and_of_the_service_at_random_points_change_nothing,
    what_a_job_leaves_behind_is_removed_and_told);

}  // namespace gyre::jobs::drivers
