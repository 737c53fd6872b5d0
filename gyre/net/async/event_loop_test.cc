// A rank that cannot have its thread must say so and stay as it was: with its signals, above all.
#include "gyre/net/async/event_loop.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <boost/asio/post.hpp>
#include <csignal>
#include <future>
#include <optional>
#include <string>

#include "gyre/base/error.h"
#include "gyre/base/thread_test_support.h"

namespace gyre::net {
namespace {

TEST(EventLoop, runs_what_is_posted_on_a_thread_without_signals) {
  EventLoop loop;
  std::promise<int> blocked;
  asio::post(loop.context(), [&] {
    sigset_t mask;
    ::pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    blocked.set_value(sigismember(&mask, SIGTERM));
  });
  EXPECT_EQ(blocked.get_future().get(), 1);
}

TEST(EventLoop, without_a_thread_there_is_one_error_and_signals_still_arrive) {
  auto none = std::make_optional<NoThreads>();
  try {
    const EventLoop loop;
    ADD_FAILURE() << "no error was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted);
    EXPECT_NE(std::string(error.what()).find("the system gives no thread for a rank's connections"), std::string::npos)
        << error.what();
  }
  none.reset();
  sigset_t mask;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  EXPECT_EQ(sigismember(&mask, SIGTERM), 0);
}

}  // namespace
}  // namespace gyre::net
