// run_test PROGRAM ARGUMENT...: what CTest starts in place of a test program, to notice what CTest does not. A test
// that ends the process with code 0 before it is over fails. Processes that a test leaves behind are named, and killed:
// CTest would wait for them, or the next test meet them. With GYRE_TEST_LEFTOVERS=fail they fail it. Ports end with the
// processes. For Python: tests/support/leftovers.py.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace {

/// What was told to end may take so long on a busy machine. The tests of this program shorten it.
std::chrono::seconds longest_end() {
  const char* seconds = std::getenv("GYRE_TEST_END_SECONDS");
  return std::chrono::seconds{seconds != nullptr ? std::atoi(seconds) : 10};
}

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Those of this process. What has lost its parent has become one of them (PR_SET_CHILD_SUBREAPER).
std::vector<pid_t> children() {
  const std::string self = std::to_string(getpid());
  std::ifstream file("/proc/" + self + "/task/" + self + "/children");
  return {std::istream_iterator<pid_t>(file), {}};
}

/// Waits for a test program, and for what loses its parent meanwhile. Returns its status.
int wait_for(pid_t program) {
  int status = 0;
  for (;;) {
    const pid_t ended = waitpid(-1, &status, 0);
    if (ended == program) return status;
    if (ended < 0 && errno != EINTR) return 1 << 8;
  }
}

/// Whether nothing is left when it has had the time to end.
bool nothing_left(std::chrono::seconds longest) {
  const auto until = std::chrono::steady_clock::now() + longest;
  for (;;) {
    const pid_t ended = waitpid(-1, nullptr, WNOHANG);
    if (ended < 0) return true;
    if (ended > 0) continue;
    if (std::chrono::steady_clock::now() >= until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds{2});
  }
}

void name_and_kill(pid_t pid) {
  std::string command = contents("/proc/" + std::to_string(pid) + "/cmdline");
  std::replace(command.begin(), command.end(), '\0', ' ');
  std::fprintf(stderr, "left behind: process %d (%s)\n", pid, command.c_str());
  kill(pid, SIGKILL);
}

/// Children of what is killed become ours in turn.
void end_the_rest() {
  std::set<pid_t> killed;
  while (!nothing_left(std::chrono::seconds{0})) {
    for (const pid_t pid : children()) {
      if (killed.insert(pid).second) name_and_kill(pid);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds{2});
  }
}

/// Ends as another process has ended.
int end_as(int status) {
  if (!WIFSIGNALED(status)) return WEXITSTATUS(status);
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);  // One core file is enough.
  signal(WTERMSIG(status), SIG_DFL);
  raise(WTERMSIG(status));
  return 128 + WTERMSIG(status);
}

bool leftovers_are_failures() {
  const char* wish = std::getenv("GYRE_TEST_LEFTOVERS");
  return wish != nullptr && std::string(wish) == "fail";
}

}  // namespace

int main(int, char** arguments) {
  const char* folder = std::getenv("TMPDIR");
  // GoogleTest makes this file when it begins, and removes it when all tests are over.
  const std::string unfinished =
      std::string(folder != nullptr ? folder : "/tmp") + "/gyre-unfinished-test-" + std::to_string(getpid());
  setenv("TEST_PREMATURE_EXIT_FILE", unfinished.c_str(), 1);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  const pid_t parent = getpid();
  const pid_t program = fork();
  if (program == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // CTest kills this process only when the time is up.
    if (getppid() != parent) _exit(1);
    execv(arguments[1], arguments + 1);
    std::perror(arguments[1]);
    _exit(127);
  }
  int status = wait_for(program);
  const bool passed = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  if (!nothing_left(passed ? longest_end() : std::chrono::seconds{0})) {
    end_the_rest();
    if (passed && leftovers_are_failures()) status = 1 << 8;
  }
  const bool is_unfinished = unlink(unfinished.c_str()) == 0;
  if (passed && is_unfinished) {
    std::fprintf(stderr, "the process ended, with code 0, before the test was over\n");
    status = 1 << 8;
  }
  return end_as(status);
}
