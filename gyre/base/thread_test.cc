// Containers limit processes: a program that may start no more threads should say so, not show an errno. And handlers
// of signals are the program's: they expect its threads, not ours.
#include "gyre/base/thread.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <future>
#include <set>
#include <thread>
#include <vector>

#include <set>
#include <thread>

#include "gyre/base/error.h"
#include "gyre/base/thread_test_support.h"

namespace gyre {
namespace {

TEST(ThreadTest, runs_what_it_was_given) {
  bool ran = false;
  start_thread("a test", [&] { ran = true; }).join();
  EXPECT_TRUE(ran);
}

TEST(ThreadTest, two_threads_never_have_the_same_serial_though_they_may_have_the_same_identity) {
  std::set<std::uint64_t> seen = {thread_serial()};
  for (int i = 0; i < 100; ++i) {
    std::thread([&] { EXPECT_TRUE(seen.insert(thread_serial()).second); }).join();
  }
  EXPECT_TRUE(seen.contains(thread_serial()));
  EXPECT_FALSE(seen.contains(0));
}

TEST(ThreadTest, knows_its_own_threads_as_long_as_they_run) {
  pid_t number = 0;
  bool known = false;
  start_thread("a test", [&] {
    number = ThreadIdentity::current().number;
    known = is_own_thread(number);
  }).join();
  EXPECT_TRUE(known);
  EXPECT_FALSE(is_own_thread(number));
  EXPECT_FALSE(is_own_thread(ThreadIdentity::current().number));
}

TEST(ThreadTest, says_for_what_there_was_no_thread) {
  const NoThreads limit;
  try {
    start_thread("a test", [] {}).join();
    FAIL() << "the limit did not work";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted);
    EXPECT_THAT(error.what(), testing::HasSubstr("no thread for a test"));
  }
}

std::vector<int> blocked_signals() {
  sigset_t mask;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  std::vector<int> blocked;
  for (int signal = 1; signal <= SIGRTMAX; ++signal) {
    if (sigismember(&mask, signal) == 1) blocked.push_back(signal);
  }
  return blocked;
}

TEST(ThreadTest, gets_no_signals_but_those_of_its_own_faults) {
  const std::vector<int> before = blocked_signals();
  std::vector<int> blocked;
  start_thread("a test", [&] { blocked = blocked_signals(); }).join();
  const std::set<int> faults{SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT};
  for (int signal = 1; signal <= SIGRTMAX; ++signal) {
    // Two belong to the C library, two cannot be blocked.
    if ((signal > SIGSYS && signal < SIGRTMIN) || signal == SIGKILL || signal == SIGSTOP) continue;
    EXPECT_EQ(std::count(blocked.begin(), blocked.end(), signal), faults.contains(signal) ? 0 : 1) << signal;
  }
  EXPECT_EQ(blocked_signals(), before) << "the signals of the thread that starts another one have changed";
}

TEST(ThreadTest, a_handler_runs_on_the_programs_own_thread) {
  static std::atomic<pthread_t> handled{};
  struct sigaction action{};
  struct sigaction before{};
  action.sa_handler = [](int) { handled = ::pthread_self(); };
  ::sigaction(SIGUSR1, &action, &before);
  std::promise<void> over;
  std::thread ours = start_thread("a test", [&] { over.get_future().wait(); });
  std::thread program([&] {  // The only thread that takes it: the kernel would prefer the main thread otherwise.
    while (handled == pthread_t{}) std::this_thread::yield();
  });
  const pthread_t programs_own = program.native_handle();
  sigset_t user;
  ::sigemptyset(&user);
  ::sigaddset(&user, SIGUSR1);
  ::pthread_sigmask(SIG_BLOCK, &user, nullptr);
  ::kill(::getpid(), SIGUSR1);
  program.join();
  EXPECT_EQ(handled, programs_own);
  over.set_value();
  ours.join();
  ::pthread_sigmask(SIG_UNBLOCK, &user, nullptr);
  ::sigaction(SIGUSR1, &before, nullptr);
}

TEST(ThreadTest, without_a_thread_the_callers_signals_are_as_before) {
  const std::vector<int> before = blocked_signals();
  {
    const NoThreads limit;
    EXPECT_THROW(start_thread("a test", [] {}).join(), Error);
  }
  EXPECT_EQ(blocked_signals(), before);
}

}  // namespace
}  // namespace gyre
