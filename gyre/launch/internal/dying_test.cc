// Who fails while another rank dies is no cause; so we must know a rank that dies from one that lives.
#include "gyre/launch/internal/dying.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <csignal>

#include "gyre/base/process.h"

namespace gyre::launch {
namespace {

Process sleeper() {
  SpawnOptions options;
  options.argv = {"sleep", "1000"};
  options.environment = {"PATH=/usr/local/bin:/usr/bin:/bin"};
  return Process::spawn(options);
}

TEST(dying, a_process_that_lives_is_not) {
  const Process process = sleeper();
  EXPECT_FALSE(is_dying(process.pid()));
}

TEST(dying, a_killed_process_is_from_the_kill_until_it_is_reaped) {
  const Process process = sleeper();
  ASSERT_EQ(::kill(process.pid(), SIGKILL), 0);
  EXPECT_TRUE(is_dying(process.pid()));
  pollfd end{.fd = process.pidfd(), .events = POLLIN, .revents = 0};
  ASSERT_EQ(::poll(&end, 1, 20'000), 1);
  EXPECT_TRUE(is_dying(process.pid()));
}

TEST(dying, a_stopped_process_that_is_killed_is) {
  const Process process = sleeper();
  ASSERT_EQ(::kill(process.pid(), SIGSTOP), 0);
  EXPECT_FALSE(is_dying(process.pid()));
  ASSERT_EQ(::kill(process.pid(), SIGKILL), 0);
  EXPECT_TRUE(is_dying(process.pid()));
}

}  // namespace
}  // namespace gyre::launch
