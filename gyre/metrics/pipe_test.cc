// What a rank logs must reach the launcher whole and in order, and must never make the rank wait.
#include "gyre/metrics/pipe.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <thread>
#include <vector>

#include "gyre/base/error.h"

namespace gyre::metrics {
namespace {

/// Reads what lies in the pipe now, in pieces of `piece` bytes.
std::vector<std::string> received(const UniqueFd& read_end, BlockStream& stream, std::size_t piece = 4'096) {
  std::vector<std::string> all;
  Bytes buffer(piece);
  for (;;) {
    const ssize_t count = ::read(read_end.get(), buffer.data(), buffer.size());
    if (count <= 0) return all;
    stream.take(std::span(buffer).first(static_cast<std::size_t>(count)), [&](std::span<const Sample> samples) {
      for (const Sample& each : samples) {
        all.push_back(fmt::format("{} rank {} step {} = {}", each.name, each.rank, each.step, each.value));
      }
    });
  }
}

TEST(MetricsPipe, brings_the_values_of_a_call_together) {
  Pipe pipe = make_pipe();
  Logger logger(std::move(pipe.write_end), 3);
  logger.log(std::array{Value{"loss", 0.5}, Value{"accuracy", 0.25}}, 7);
  logger.log_own(std::array{Value{"gyre/sent_bytes", 9.0}}, 8);
  BlockStream stream;
  EXPECT_THAT(received(pipe.read_end, stream, 5),
              testing::ElementsAre("loss rank 3 step 7 = 0.5", "accuracy rank 3 step 7 = 0.25",
                                   "gyre/sent_bytes rank 3 step 8 = 9"));
}

TEST(MetricsPipe, a_call_with_a_bad_name_logs_nothing) {
  Pipe pipe = make_pipe();
  Logger logger(std::move(pipe.write_end), 0);
  EXPECT_THROW(logger.log(std::array{Value{"loss", 0.5}, Value{"gyre/mine", 1}}, 1), Error);
  EXPECT_THROW(logger.log(std::array{Value{"", 1}}, 1), Error);
  BlockStream stream;
  EXPECT_TRUE(received(pipe.read_end, stream).empty());
}

TEST(MetricsPipe, a_launcher_that_does_not_read_makes_nobody_wait) {
  // The pipe fills, then the rank's memory up to its limit; afterwards everything that was kept arrives in order.
  Pipe pipe = make_pipe();
  Logger logger(std::move(pipe.write_end), 0);
  std::vector<std::string> names;
  for (int i = 0; i < 200; ++i) names.push_back(fmt::format("{:0>150}", i));
  std::vector<Value> values;
  for (const std::string& name : names) values.push_back({name, 1});
  constexpr int kCalls = 100;  // 3.6 MB.
  for (int step = 0; step < kCalls; ++step) logger.log(values, step);
  EXPECT_FALSE(logger.flush(Deadline::after(std::chrono::milliseconds(1))));
  BlockStream stream;
  std::vector<std::string> all;
  const auto read_on = [&] { std::ranges::move(received(pipe.read_end, stream), std::back_inserter(all)); };
  read_on();
  while (!logger.flush(Deadline::after(std::chrono::milliseconds(1)))) read_on();
  read_on();
  logger.log(std::array{Value{"last", 1}}, kCalls);
  read_on();
  ASSERT_GT(all.size(), 1'000U);
  EXPECT_EQ(all.back(), "last rank 0 step 100 = 1");
  std::size_t kept = 0;
  for (std::size_t i = 0; i + 2 < all.size(); ++i, ++kept) {
    ASSERT_EQ(all[i], fmt::format("{} rank 0 step {} = 1", names[i % names.size()], i / names.size()));
  }
  EXPECT_EQ(all[all.size() - 2],
            fmt::format("{} rank 0 step 99 = {}", Logger::kDroppedName, kCalls * names.size() - kept));
}

TEST(MetricsPipe, the_last_samples_leave_with_the_rank) {
  Pipe pipe = make_pipe();
  auto logger = std::make_unique<Logger>(std::move(pipe.write_end), 0);
  const std::string name(150, 'x');
  const std::vector<Value> values(100, Value{name, 1});
  constexpr int kCalls = 1'000;  // 1.2 MB: a little more than the pipe takes.
  for (int step = 0; step < kCalls; ++step) logger->log(values, step);
  std::size_t count = 0;
  std::thread reader([&] {
    BlockStream stream;
    while (count < kCalls * values.size()) count += received(pipe.read_end, stream).size();
  });
  logger.reset();
  reader.join();
  EXPECT_EQ(count, kCalls * values.size());
}

TEST(MetricsPipe, threads_of_a_rank_log_at_the_same_time) {
  Pipe pipe = make_pipe();
  Logger logger(std::move(pipe.write_end), 0);
  constexpr int kCalls = 500;
  std::vector<std::thread> threads;
  for (const char* name : {"a", "b", "c"}) {
    threads.emplace_back([&logger, name] {
      for (int step = 0; step < kCalls; ++step) logger.log(std::array{Value{name, 1.0}}, step);
    });
  }
  for (std::thread& thread : threads) thread.join();
  BlockStream stream;
  const auto all = received(pipe.read_end, stream);
  EXPECT_EQ(all.size(), 3U * kCalls);
  for (const char* name : {"a", "b", "c"}) {
    int step = 0;  // Each thread's in their order.
    for (const std::string& each : all) {
      if (!each.starts_with(name)) continue;
      ASSERT_EQ(each, fmt::format("{} rank 0 step {} = 1", name, step++));
    }
  }
}

TEST(MetricsPipe, a_launcher_that_has_gone_is_no_failure) {
  Pipe pipe = make_pipe();
  Logger logger(std::move(pipe.write_end), 0);
  pipe.read_end.reset();
  logger.log(std::array{Value{"loss", 1}}, 1);  // SIGPIPE would end the test.
  logger.log(std::array{Value{"loss", 1}}, 2);
  EXPECT_FALSE(logger.flush(Deadline::after(std::chrono::seconds(10))));
}

TEST(MetricsPipe, something_else_in_the_pipe_is_refused) {
  BlockStream stream;
  EXPECT_THROW(stream.take(as_bytes("a line that somebody has printed there\n"), [](auto) { FAIL(); }), Error);
}

TEST(MetricsPipe, what_is_not_the_launchers_pipe_is_left_alone) {
  EXPECT_EQ(Logger::inherited(-1, 0), nullptr);
  EXPECT_EQ(Logger::inherited(STDERR_FILENO, 0), nullptr);
  const Pipe pipe = make_pipe();
  EXPECT_EQ(Logger::inherited(pipe.read_end.get(), 0), nullptr);
  EXPECT_NE(Logger::inherited(pipe.write_end.get(), 0), nullptr);
}

}  // namespace
}  // namespace gyre::metrics
