// A debugger in one rank needs what a person types; what is typed for the shell meanwhile must not be eaten.
#include "gyre/launch/internal/input_relay.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <string>

#include "gyre/base/process.h"
#include "gyre/launch/internal/asks_for_input.h"

namespace gyre::launch {
namespace {

class InputRelayTest : public testing::Test {
 protected:
  InputRelayTest() {
    ::signal(SIGPIPE, SIG_IGN);  // As in a launcher.
    std::array<int, 2> ends;
    EXPECT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
    source_ = UniqueFd(ends[0]);
    person_ = UniqueFd(ends[1]);
  }

  void type(const std::string& text) const {
    ASSERT_EQ(::write(person_.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  int left_in_source() const {
    int bytes = -1;
    ::ioctl(source_.get(), FIONREAD, &bytes);
    return bytes;
  }
  static Process start(InputRelay& relay, const std::string& script) {
    SpawnOptions options;
    options.argv = {"sh", "-c", script};
    options.environment = {"PATH=/usr/local/bin:/usr/bin:/bin"};
    options.stdin_fd = relay.rank_end();
    Process process = Process::spawn(options);
    relay.started(process.pid());
    return process;
  }
  static void serve(InputRelay& relay, const Process& process) {
    const Deadline deadline = Deadline::after(std::chrono::seconds(30));
    while (!process.exit_status() && !deadline.passed()) {
      relay.advance();
      std::vector<pollfd> waits = {{.fd = process.pidfd(), .events = POLLIN, .revents = 0}};
      relay.add_waits(waits);
      ::poll(waits.data(), waits.size(), 10);
    }
    ASSERT_TRUE(process.exit_status());
  }

  UniqueFd source_;
  UniqueFd person_;
};

TEST_F(InputRelayTest, a_rank_that_asks_gets_the_line) {
  InputRelay relay(source_.get(), true);
  const Process process = start(relay, "read line; exit ${#line}");
  type("hello\n");
  serve(relay, process);
  EXPECT_EQ(process.exit_status(), (ExitStatus{.code = 5, .signal = 0}));
}

TEST_F(InputRelayTest, a_program_that_the_rank_has_started_may_ask) {
  InputRelay relay(source_.get(), true);
  const Process process = start(relay, "sh -c 'read line; exit ${#line}'; exit $?");
  type("hello\n");
  serve(relay, process);
  EXPECT_EQ(process.exit_status(), (ExitStatus{.code = 5, .signal = 0}));
}

TEST_F(InputRelayTest, what_no_rank_asks_for_stays_where_it_is) {
  InputRelay relay(source_.get(), true);
  const Process process = start(relay, "sleep 0.5");
  type("ls\n");
  serve(relay, process);
  EXPECT_EQ(left_in_source(), 3);
}

TEST_F(InputRelayTest, all_input_and_its_end_reach_a_rank_that_was_chosen) {
  InputRelay relay(source_.get(), false);
  const Process process = start(relay, "test \"$(wc -c)\" -eq 60000");
  const std::string part(30'000, 'x');
  type(part);
  type(part);
  person_.reset();
  serve(relay, process);
  EXPECT_EQ(process.exit_status(), (ExitStatus{.code = 0, .signal = 0}));
}

TEST_F(InputRelayTest, a_prompt_is_noticed_when_the_rank_waits_behind_it) {
  InputRelay relay(source_.get(), true);
  const Process process = start(relay, "read line");
  relay.rank_wrote(true);
  const Deadline deadline = Deadline::after(std::chrono::seconds(30));
  bool asked = false;
  while (!asked && !deadline.passed()) {
    asked = relay.advance().asks;
    ::poll(nullptr, 0, 5);
  }
  EXPECT_TRUE(asked);
  EXPECT_EQ(asks_for_input(process.pid()), Asks::kYes);
}

TEST_F(InputRelayTest, a_rank_that_has_closed_its_stdin_is_left_alone) {
  InputRelay relay(source_.get(), false);
  const Process process = start(relay, "exec <&-; sleep 0.3");
  ::usleep(100'000);
  type("hello\n");
  serve(relay, process);
  EXPECT_TRUE(process.exit_status()->success());
}

}  // namespace
}  // namespace gyre::launch
