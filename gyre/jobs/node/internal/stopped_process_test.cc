// A job that stopped the process of its own attempt stayed "running" for ever, and kept its node.
#include "gyre/jobs/node/internal/stopped_process.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "gyre/base/process_stat.h"

namespace gyre::jobs::node::internal {
namespace {

class Sleeper {
 public:
  Sleeper() : pid_(::fork()) {
    if (pid_ == 0) {
      for (;;) ::pause();
    }
  }
  ~Sleeper() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  void stop() const {
    ::kill(pid_, SIGSTOP);
    ::waitpid(pid_, nullptr, WUNTRACED);
  }
  bool is_stopped() const { return read_process_stat(pid_)->state == 'T'; }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

TEST(StoppedProcess, one_that_stays_stopped_is_continued_and_told_of_once) {
  const Sleeper sleeper;
  StoppedProcess watch;
  EXPECT_FALSE(watch.look(sleeper.pid()));
  sleeper.stop();
  EXPECT_FALSE(watch.look(sleeper.pid()));  // It may go on by itself.
  EXPECT_TRUE(sleeper.is_stopped());
  EXPECT_TRUE(watch.look(sleeper.pid()));
  EXPECT_FALSE(sleeper.is_stopped());
  sleeper.stop();
  watch.look(sleeper.pid());
  EXPECT_FALSE(watch.look(sleeper.pid()));  // Told already.
  EXPECT_FALSE(sleeper.is_stopped());
}

TEST(StoppedProcess, one_that_has_gone_is_nothing) {
  pid_t gone = 0;
  {
    const Sleeper sleeper;
    gone = sleeper.pid();
  }
  StoppedProcess watch;
  EXPECT_FALSE(watch.look(gone));
  EXPECT_FALSE(watch.look(gone));
}

}  // namespace
}  // namespace gyre::jobs::node::internal
