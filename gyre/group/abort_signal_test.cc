// One failure must end every kind of wait, once, with the first reason.
#include "gyre/group/abort_signal.h"

#include <gtest/gtest.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <thread>

#include "gyre/net/socket.h"

namespace gyre::group {
namespace {

using std::chrono::milliseconds;

TEST(AbortSignal, the_first_reason_wins_and_stays) {
  AbortSignal signal;
  EXPECT_FALSE(signal.triggered());
  EXPECT_FALSE(signal.reason().has_value());
  EXPECT_NO_THROW(signal.throw_if_triggered());
  EXPECT_TRUE(signal.trigger(Error(ErrorCode::kPeerLost, "first")));
  EXPECT_FALSE(signal.trigger(Error(ErrorCode::kInternal, "second")));
  EXPECT_TRUE(signal.triggered());
  try {
    signal.throw_if_triggered();
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kPeerLost);
    EXPECT_STREQ(error.what(), "first");
  }
  EXPECT_NO_THROW(net::wait_for(signal.fd(), POLLIN, Deadline::after(milliseconds(20'000)), "the signal"));
}

TEST(AbortSignal, sleepers_on_registered_futexes_wake) {
  AbortSignal signal;
  std::atomic<std::uint32_t> word{0};
  signal.add_futex(&word);
  std::atomic<int> wakes{0};
  std::thread sleeper([&] {
    // As a waiter does: in slices, looking at the signal in between.
    while (!signal.triggered()) {
      const timespec slice{0, 100'000'000};
      if (::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAIT, 0, &slice, nullptr, 0) == 0)
        ++wakes;
    }
  });
  while (wakes == 0) signal.wake_waiters();
  signal.trigger(Error(ErrorCode::kAborted, "stop"));
  sleeper.join();
  signal.remove_futex(&word);
  signal.wake_waiters();
  EXPECT_GE(wakes.load(), 1);
}

}  // namespace
}  // namespace gyre::group
