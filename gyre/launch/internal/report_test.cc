// The closing block is all that most people read of a failed job.
#include "gyre/launch/internal/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

namespace gyre::launch {
namespace {

using testing::HasSubstr;
using testing::Not;

FailureReport killed_rank() {
  FailureReport report;
  report.rank = 2;
  report.ranks = 4;
  report.host = "node1";
  report.pid = 4711;
  report.status = {.code = 0, .signal = SIGKILL};
  report.after = std::chrono::milliseconds(12'345);
  report.last_lines = {"epoch 1", "epoch 2"};
  report.log_file = "logs/rank-2.log";
  report.ended_because = {0, 1};
  report.finished_before = {3};
  return report;
}

TEST(report, the_block_names_the_rank_the_place_the_end_and_the_last_lines) {
  EXPECT_EQ(failure_block(killed_rank(), false),
            "gyre run: rank 2 of 4 failed first, 12.3 s after the start: SIGKILL (signal 9)\n"
            "  host         node1\n"
            "  pid          4711\n"
            "  likely cause the kernel's out-of-memory killer (see `dmesg`) or a `kill -9`\n"
            "  others       2 ranks were ended because of it: 0, 1\n"
            "  before it    rank 3 had already ended with exit code 0\n"
            "  log file     logs/rank-2.log\n"
            "  its last lines\n"
            "    | epoch 1\n"
            "    | epoch 2\n");
}

TEST(report, what_a_watchdog_has_ended_is_never_the_first_failure) {
  FailureReport report = killed_rank();
  report.status = {.code = 0, .signal = SIGABRT};
  for (const int rank : {0, 1, 3}) {
    report.watchdogs.push_back({.rank = rank,
                                .group = "0(default_pg)",
                                .call = 7,
                                .operation = "ALLREDUCE",
                                .elements = "NumelIn=4, NumelOut=4",
                                .last_called = "7"});
  }
  report.stall = "stall: 'x' is ready on ranks 0, 1, 3; missing: rank 2: train.py:7";
  EXPECT_THAT(failure_block(report, false),
              HasSubstr("gyre run: rank 2 of 4 did not make a call that ranks 0, 1, 3 waited for; the watchdog of the "
                        "device's library ended the job, 12.3 s after the start: SIGABRT (signal 6)\n"
                        "  call         number 7 of its group, ALLREDUCE (NumelIn=4, NumelOut=4)\n"
                        "  Gyre's report stall: 'x' is ready on ranks 0, 1, 3; missing: rank 2: train.py:7\n"
                        "  host         node1\n"
                        "  pid          4711\n"
                        "  likely cause a collective on some ranks only"));
  EXPECT_THAT(failure_block(report, false), Not(HasSubstr("failed first")));
}

TEST(report, the_users_own_line_stands_first) {
  FailureReport report = killed_rank();
  report.error = PythonError{.place = "train.py:12, in step", .source = "1 / 0", .error = "ZeroDivisionError: by zero"};
  EXPECT_THAT(failure_block(report, false), HasSubstr("SIGKILL (signal 9)\n"
                                                      "  your line    train.py:12, in step: 1 / 0\n"
                                                      "  error        ZeroDivisionError: by zero\n"
                                                      "  host         node1\n"));
  report.error->source.clear();
  EXPECT_THAT(failure_block(report, false), HasSubstr("  your line    train.py:12, in step\n"));
  report.error->place.clear();
  EXPECT_THAT(failure_block(report, false), Not(HasSubstr("your line")));
}

TEST(report, a_rank_that_wanted_input_is_told_how_to_get_it) {
  FailureReport report = killed_rank();
  report.status = {.code = 1, .signal = 0};
  for (const char* error : {"EOFError: EOF when reading a line", "bdb.BdbQuit"}) {
    report.error = PythonError{.place = {}, .source = {}, .error = error};
    EXPECT_THAT(failure_block(report, false), HasSubstr("`gyre run --stdin 2`"));
  }
}

TEST(report, a_script_without_a_guard_is_told_to_have_one) {
  FailureReport report = killed_rank();
  report.child_failed_to_import = true;
  EXPECT_THAT(failure_block(report, false),
              HasSubstr("put the script's top-level code under `if __name__ == '__main__':`"));
}

// The first try of somebody who comes from there.
TEST(report, a_script_for_horovod_or_nccl_is_told_what_to_write_here) {
  FailureReport report = killed_rank();
  report.error = PythonError{.place = {}, .source = {}, .error = "ModuleNotFoundError: No module named 'horovod'"};
  EXPECT_THAT(failure_block(report, false), HasSubstr("`gyre run --horovod-compat` runs its scripts unchanged"));
  report.is_services_job = true;  // Where a host has only a copy of our programs, the option is given and does nothing.
  EXPECT_THAT(failure_block(report, false), HasSubstr("install gyre-train there"));
  EXPECT_THAT(failure_block(report, false), Not(HasSubstr("--horovod-compat")));
  report.is_services_job = false;
  report.error->error = "ModuleNotFoundError: No module named 'horovod.mxnet'";  // Of the compatible modules.
  EXPECT_THAT(failure_block(report, false), Not(HasSubstr("--horovod-compat")));
  report.error->error = "RuntimeError: Distributed package doesn't have NCCL built in";
  EXPECT_THAT(failure_block(report, false), HasSubstr("write init_process_group(\"gyre\")"));
  report.error->error = "ValueError: Your assigned backend gyre is not available, please use one of gloo, mpi";
  EXPECT_THAT(failure_block(report, false), HasSubstr("init_process_group(\"gyre\") before TrainingArguments"));
}

TEST(report, a_file_below_the_folder_is_named_from_there) {
  EXPECT_EQ(place_seen_from("/home/ada/", "/home/ada/src/train.py:3"), "src/train.py:3");
  EXPECT_EQ(place_seen_from("/home/ada/", "/home/adam/train.py:3"), "/home/adam/train.py:3");
}

TEST(report, a_rank_that_left_while_others_may_have_needed_it_brings_the_usual_cause_to_mind) {
  FailureReport report = killed_rank();
  report.they_left_a_group = true;
  report.status = {.code = 1};
  EXPECT_THAT(
      failure_block(report, false),
      HasSubstr("rank 3 had already ended with exit code 0 (uneven number of batches? see join(); or a collective "
                "on some ranks only, such as evaluation on rank 0)\n"));
  for (const ExitStatus other : {ExitStatus{.code = 3}, ExitStatus{.signal = SIGKILL}}) {
    report.status = other;
    EXPECT_THAT(failure_block(report, false), HasSubstr("rank 3 had already ended with exit code 0\n"));
  }
}

TEST(report, colour_is_used_only_when_asked_for) {
  EXPECT_THAT(failure_block(killed_rank(), true), HasSubstr("\x1b[1;31mgyre run"));
  EXPECT_THAT(failure_block(killed_rank(), false), Not(HasSubstr("\x1b")));
}

TEST(report, a_kill_is_explained_by_what_the_kernel_counted) {
  FailureReport report = killed_rank();
  report.out_of_memory_kills = 1;
  EXPECT_THAT(failure_block(report, false), HasSubstr("the kernel ran out of memory"));
  report.out_of_memory_kills = 0;
  EXPECT_THAT(failure_block(report, false), HasSubstr("this host did not run out of memory"));
  report.memory_limit_bytes = std::uint64_t{64} << 20;
  EXPECT_THAT(failure_block(report, false), HasSubstr("because the job reached its memory limit here, 64 MB"));
}

TEST(report, an_exit_code_is_shown_and_a_shells_signal_is_translated) {
  FailureReport report = killed_rank();
  report.status = {.code = 3, .signal = 0};
  EXPECT_THAT(failure_block(report, false), HasSubstr("after the start: exit code 3\n"));
  EXPECT_THAT(failure_block(report, false), Not(HasSubstr("likely cause")));
  report.status = {.code = 139, .signal = 0};
  EXPECT_THAT(failure_block(report, false), HasSubstr("the program that it ran was killed by SIGSEGV"));
}

// A new user's first error in a checkout was torch's, which does not say what is missing.
TEST(report, a_backend_that_torch_does_not_know_has_its_remedy_beside_it) {
  FailureReport report = killed_rank();
  report.status = {.code = 1, .signal = 0};
  for (const char* line :
       {"AssertionError: Unknown backend type gyre", "AssertionError: Unknown c10d backend type GYRE",
        "ValueError: Unknown backend 'gyre'. Specify a 'device:backend' string"}) {
    report.last_lines = {"Traceback (most recent call last):", line};
    EXPECT_THAT(failure_block(report, false), HasSubstr("write `import gyre.distributed`"));
  }
  report.last_lines = {"AssertionError: Unknown backend type gloom"};
  EXPECT_THAT(failure_block(report, false), Not(HasSubstr("gyre.distributed")));
}

TEST(report, a_silent_rank_without_a_log_is_said_to_be_that) {
  FailureReport report = killed_rank();
  report.last_lines.clear();
  report.log_file.reset();
  EXPECT_THAT(failure_block(report, false), HasSubstr("it wrote nothing"));
  EXPECT_THAT(failure_block(report, false), HasSubstr("--log-dir DIR"));
  report.is_services_job = true;  // `gyre run --cluster` refuses --log-dir.
  EXPECT_THAT(failure_block(report, false), Not(HasSubstr("log file")));
}

TEST(report, many_ranks_are_shown_as_ranges) {
  EXPECT_EQ(describe_ranks({}), "");
  EXPECT_EQ(describe_ranks({5}), "5");
  EXPECT_EQ(describe_ranks({0, 1}), "0, 1");
  EXPECT_EQ(describe_ranks({0, 1, 2, 5, 7, 8, 9}), "0-2, 5, 7-9");
}

}  // namespace
}  // namespace gyre::launch
