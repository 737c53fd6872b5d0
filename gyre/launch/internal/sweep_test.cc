// What carries a job's marker must not survive the job, whatever it is doing while it is looked at.
#include "gyre/launch/sweep.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "gyre/base/process.h"

namespace gyre::launch {
namespace {

using std::chrono::seconds;

// Of this process alone: another test of this file may run at the same time, and would kill our processes.
const std::string kMarker = "GYRE_SWEEP_TEST=" + std::to_string(::getpid());

Process start(std::vector<std::string> argv, std::vector<std::string> variables) {
  SpawnOptions options;
  options.argv = std::move(argv);
  options.environment = std::move(variables);
  options.environment.emplace_back("PATH=/usr/local/bin:/usr/bin:/bin");
  options.own_process_group = true;
  return Process::spawn(options);
}

TEST(sweep, kills_what_is_marked_and_nothing_else) {
  const Process marked = start({"sleep", "1000"}, {kMarker});
  const Process longer = start({"sleep", "1000"}, {kMarker + "-one"});
  EXPECT_EQ(kill_marked_processes(kMarker, Deadline::after(seconds(20))), std::vector{marked.pid()});
  EXPECT_TRUE(marked.wait(Deadline::after(seconds(20))).has_value());
  EXPECT_FALSE(longer.exit_status().has_value());
}

TEST(sweep, leaves_alone_what_is_spared) {
  const Process ours = start({"sleep", "1000"}, {kMarker, "NODE=a"});
  const Process theirs = start({"sleep", "1000"}, {kMarker, "NODE=b"});
  const std::vector<std::string> spared = {"NODE=b", "NODE=c"};
  EXPECT_EQ(kill_marked_processes(kMarker, Deadline::after(seconds(20)), spared), std::vector{ours.pid()});
  EXPECT_FALSE(theirs.exit_status().has_value());
  EXPECT_EQ(kill_marked_processes(kMarker, Deadline::after(seconds(20))), std::vector{theirs.pid()});
}

TEST(sweep, finds_a_process_that_is_always_becoming_another_program) {
  // In the middle of exec it has no environment that could be read.
  const std::string again = R"(exec sh -c "$AGAIN")";
  for (int round = 0; round < 50; ++round) {
    const Process restless = start({"sh", "-c", again}, {kMarker, "AGAIN=" + again});
    kill_marked_processes(kMarker, Deadline::after(seconds(20)));
    EXPECT_TRUE(restless.wait(Deadline::after(seconds(20))).has_value()) << "round " << round;
  }
}

}  // namespace
}  // namespace gyre::launch
