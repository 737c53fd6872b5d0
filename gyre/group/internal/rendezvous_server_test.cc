// What the rendezvous tells its members in moments that no well-behaved rank brings about: seats are taken by hand
// here.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "gyre/base/error.h"
#include "gyre/group/group.h"
#include "gyre/group/internal/membership_messages.h"
#include "gyre/net/message.h"
#include "gyre/net/socket.h"
#include "gyre/net/stream.h"

namespace gyre::group {
namespace {

using std::chrono::milliseconds;

Deadline soon() { return Deadline::after(milliseconds(20'000)); }

Job job_of_four(int rank) {
  Job job;
  job.rank = rank;
  job.size = 4;
  job.rendezvous = net::parse_endpoint(fmt::format("unix:@gyre-test-rendezvous-{}", ::getpid()));
  job.key.fill(std::byte{7});
  return job;
}

Error failure_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error was thrown";
  return {ErrorCode::kInternal, "none"};
}

bool contains(const Error& error, const std::string& part) {
  return std::string(error.what()).find(part) != std::string::npos;
}

/// Takes a rank's seat at the rendezvous by hand, so that the test decides what happens next.
std::unique_ptr<net::Stream> take_seat(const Job& job) {
  auto stream = net::make_socket_stream(net::connect_to(job.rendezvous, soon()), "rank 0");
  net::Hello hello;
  hello.rank = static_cast<std::uint32_t>(job.rank);
  hello.purpose = static_cast<std::uint32_t>(Purpose::kMembership);
  prove_to_acceptor(*stream, job.key, hello, soon());
  Join join;
  join.size = job.size;
  join.member.rank = job.rank;
  join.member.host_id = "h";
  join.member.host_name = "elsewhere";
  join.member.process = 4711;
  send_message(*stream, static_cast<std::uint16_t>(MessageType::kJoin), encode_join(join), soon());
  return stream;
}

TEST(Rendezvous, a_rank_that_dies_while_the_ranks_gather_is_named_at_once) {
  Job jobs[] = {job_of_four(0), job_of_four(1), job_of_four(2)};
  std::array<int, 2> verdict_pipe;
  ASSERT_EQ(::pipe2(verdict_pipe.data(), O_CLOEXEC | O_NONBLOCK), 0);
  const UniqueFd verdicts(verdict_pipe[0]);
  jobs[0].launcher_pipe = std::make_shared<LauncherPipe>(UniqueFd(verdict_pipe[1]));
  const auto check = [](const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kPeerLost);
    EXPECT_TRUE(contains(error, "rank 2 (host elsewhere, pid 4711) died")) << error.what();
    EXPECT_TRUE(contains(error, "before all 4 ranks had joined")) << error.what();
  };
  const auto start = SteadyClock::now();
  std::thread rank_zero([&] { check(failure_of([&] { join_group(jobs[0], {}, null_logger()); })); });
  const auto waiting = take_seat(jobs[1]);
  take_seat(jobs[2]).reset();
  const net::Message verdict = receive_message(*waiting, soon());
  EXPECT_EQ(verdict.type, static_cast<std::uint16_t>(MessageType::kAbort));
  check(decode_failure(verdict.payload));
  std::array<char, 16> told_to_launcher{};  // Before the others were told.
  ASSERT_GT(::read(verdicts.get(), told_to_launcher.data(), told_to_launcher.size()), 0);
  EXPECT_STREQ(told_to_launcher.data(), "failed 2\n");
  rank_zero.join();
  EXPECT_LT(SteadyClock::now() - start, milliseconds(5'000));
}

TEST(Rendezvous, a_member_that_breaks_the_protocol_is_the_failure_and_not_the_silence_after_it) {
  const Job jobs[] = {job_of_four(0), job_of_four(1), job_of_four(2)};
  std::thread rank_zero([&] {
    const Error error = failure_of([&] { join_group(jobs[0], {}, null_logger()); });
    EXPECT_TRUE(contains(error, "rank 2 (host elsewhere, pid 4711)")) << error.what();
    EXPECT_TRUE(contains(error, "unexpected message type 99")) << error.what();
  });
  const auto bad = take_seat(jobs[2]);
  send_message(*bad, 99, {}, soon());
  rank_zero.join();
}

}  // namespace
}  // namespace gyre::group
