// What the rendezvous tells its members in moments that no well-behaved rank brings about: seats are taken by hand
// here.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/group/group.h"
#include "gyre/group/internal/rendezvous/membership_messages.h"
#include "gyre/net/handshake.h"
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
  hello.encrypts = job.encrypt;
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

/// Until it has the members: from rank 0, since nobody here supplies them.
void hear_of_the_members(net::Stream& stream) {
  const net::Message membership = receive_message(stream, soon());
  EXPECT_EQ(membership.type, static_cast<std::uint16_t>(MessageType::kMembership));
  if (decode_membership(membership.payload).source) {
    send_message(stream, static_cast<std::uint16_t>(MessageType::kNoSource), {}, soon());
  }
  EXPECT_EQ(receive_message(stream, soon()).type, static_cast<std::uint16_t>(MessageType::kMembers));
}

TEST(Rendezvous, a_rank_that_dies_while_the_ranks_gather_is_named_at_once) {
  Job jobs[] = {job_of_four(0), job_of_four(1), job_of_four(2)};
  std::array<int, 2> failure_pipe;
  ASSERT_EQ(::pipe2(failure_pipe.data(), O_CLOEXEC | O_NONBLOCK), 0);
  const UniqueFd failures(failure_pipe[0]);
  jobs[0].launcher_pipe = std::make_shared<LauncherPipe>(UniqueFd(failure_pipe[1]));
  const auto check = [](const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kPeerLost);
    EXPECT_TRUE(contains(error, "rank 2 (host elsewhere, pid 4711) died")) << error.what();
    EXPECT_TRUE(contains(error, "before all 4 ranks had joined")) << error.what();
  };
  const auto start = SteadyClock::now();
  std::thread rank_zero([&] { check(failure_of([&] { join_group(jobs[0], {}, null_logger()); })); });
  const auto waiting = take_seat(jobs[1]);
  take_seat(jobs[2]).reset();
  const net::Message reason = receive_message(*waiting, soon());
  EXPECT_EQ(reason.type, static_cast<std::uint16_t>(MessageType::kAbort));
  check(decode_failure(reason.payload));
  std::array<char, 16> told_to_launcher{};  // Before the others were told.
  ASSERT_GT(::read(failures.get(), told_to_launcher.data(), told_to_launcher.size()), 0);
  EXPECT_STREQ(told_to_launcher.data(), "failed 2\n");
  rank_zero.join();
  EXPECT_LT(SteadyClock::now() - start, milliseconds(5'000));
}

/// A file as the launcher hands it to its ranks.
std::shared_ptr<UniqueFd> file_of_ended_ranks() {
  auto file = std::make_shared<UniqueFd>(::memfd_create("ended", MFD_CLOEXEC));
  EXPECT_TRUE(*file);
  return file;
}

void note(const UniqueFd& file, const std::string& line) {
  ASSERT_EQ(::write(file.get(), line.data(), line.size()), static_cast<ssize_t>(line.size()));
}

constexpr const char* kRankTwoEnded = "rank 2 (host here, pid 5) ended with exit code 0";

void check_that_rank_two_is_named(const Error& error) {
  EXPECT_EQ(error.code(), ErrorCode::kPeerLost);
  EXPECT_TRUE(contains(error, kRankTwoEnded)) << error.what();
}

TEST(Rendezvous, a_rank_that_ends_before_it_joins_is_named_to_all_who_wait) {
  Job jobs[] = {job_of_four(0), job_of_four(1)};
  const auto ended = file_of_ended_ranks();
  jobs[0].ended = ended;
  const auto start = SteadyClock::now();
  std::thread rank_zero(
      [&] { check_that_rank_two_is_named(failure_of([&] { join_group(jobs[0], {}, null_logger()); })); });
  const auto waiting = take_seat(jobs[1]);
  note(*ended, std::string(kRankTwoEnded) + "\n");
  const net::Message reason = receive_message(*waiting, soon());
  EXPECT_EQ(reason.type, static_cast<std::uint16_t>(MessageType::kAbort));
  check_that_rank_two_is_named(decode_failure(reason.payload));
  rank_zero.join();
  EXPECT_LT(SteadyClock::now() - start, milliseconds(30'000));  // The time limit for joining is 60 s.
}

TEST(Rendezvous, who_waits_and_hears_of_an_end_tells_rank_zero_and_lets_it_decide) {
  Job job = job_of_four(1);
  job.ended = file_of_ended_ranks();
  const UniqueFd listener = net::listen_on(job.rendezvous);
  std::thread rank_one([&] {
    const Error error = failure_of([&] { join_group(job, {}, null_logger()); });
    EXPECT_TRUE(contains(error, "as rank 0 says")) << error.what();
  });
  net::wait_for(listener.get(), POLLIN, soon(), "rank 1");
  const auto stream = net::make_socket_stream(net::accept_from(listener.get()), "rank 1");
  net::admit_connector(*stream, job.key, 0, soon());
  EXPECT_EQ(receive_message(*stream, soon()).type, static_cast<std::uint16_t>(MessageType::kJoin));
  note(*job.ended, std::string(kRankTwoEnded) + "\n");
  const net::Message word = receive_message(*stream, soon());
  EXPECT_EQ(word.type, static_cast<std::uint16_t>(MessageType::kEnded));
  check_that_rank_two_is_named(decode_failure(word.payload));
  send_message(*stream, static_cast<std::uint16_t>(MessageType::kAbort),
               encode_failure(Error(ErrorCode::kPeerLost, "as rank 0 says")), soon());
  rank_one.join();
}

TEST(Rendezvous, rank_zero_believes_a_member_that_has_heard_of_an_end_and_tells_all) {
  const Job jobs[] = {job_of_four(0), job_of_four(1)};
  std::thread rank_zero(
      [&] { check_that_rank_two_is_named(failure_of([&] { join_group(jobs[0], {}, null_logger()); })); });
  const auto teller = take_seat(jobs[1]);
  send_message(*teller, static_cast<std::uint16_t>(MessageType::kEnded),
               encode_failure(Error(ErrorCode::kPeerLost, kRankTwoEnded)), soon());
  check_that_rank_two_is_named(decode_failure(receive_message(*teller, soon()).payload));
  rank_zero.join();
}

TEST(Rendezvous, nobody_waits_for_a_rank_zero_that_does_not_join_when_another_has_ended) {
  Job job = job_of_four(1);
  job.ended = file_of_ended_ranks();
  const auto join = [&] { check_that_rank_two_is_named(failure_of([&] { join_group(job, {}, null_logger()); })); };
  std::thread without_anybody_who_listens(join);
  note(*job.ended, std::string(kRankTwoEnded) + "\n");
  without_anybody_who_listens.join();

  job.ended = file_of_ended_ranks();
  const UniqueFd listener = net::listen_on(job.rendezvous);
  std::thread without_anybody_who_answers(join);
  net::wait_for(listener.get(), POLLIN, soon(), "rank 1");
  note(*job.ended, std::string(kRankTwoEnded) + "\n");
  without_anybody_who_answers.join();
}

TEST(Rendezvous, what_a_strange_program_left_in_the_launchers_place_stops_nobody) {
  Job jobs[] = {job_of_four(0), job_of_four(1), job_of_four(2), job_of_four(3)};
  for (Job& job : jobs) {
    job.ended = file_of_ended_ranks();
    note(*job.ended, "something else\nrank 2 (host here, pid 5) ended");
  }
  std::vector<std::thread> ranks;
  for (const Job& job : jobs) ranks.emplace_back([&job] { EXPECT_TRUE(join_group(job, {}, null_logger())); });
  for (std::thread& rank : ranks) rank.join();
}

TEST(Rendezvous, an_end_that_is_told_after_all_have_joined_harms_nobody) {
  const Job jobs[] = {job_of_four(0), job_of_four(1), job_of_four(2), job_of_four(3)};
  std::unique_ptr<Group> group;
  std::thread rank_zero([&] { group = join_group(jobs[0], {}, null_logger()); });
  std::vector<std::unique_ptr<net::Stream>> others;
  for (int rank = 1; rank < 4; ++rank) others.push_back(take_seat(jobs[rank]));
  rank_zero.join();
  for (const auto& other : others) hear_of_the_members(*other);
  send_message(*others[0], static_cast<std::uint16_t>(MessageType::kEnded),
               encode_failure(Error(ErrorCode::kPeerLost, kRankTwoEnded)), soon());
  // What the same member says next has been handled after it.
  send_message(*others[0], static_cast<std::uint16_t>(MessageType::kLeave), {}, soon());
  EXPECT_EQ(receive_message(*others[1], soon()).type, static_cast<std::uint16_t>(MessageType::kLeft));
  others.clear();
}

TEST(Rendezvous, ranks_that_leave_together_cost_each_other_a_few_messages_and_not_one_for_each) {
  // A message to every other rank for each that leaves made a job of 256 ranks spend 15 s on ending.
  constexpr int kRanks = 1024;
  std::vector<Job> jobs(kRanks, job_of_four(0));
  for (int rank = 0; rank < kRanks; ++rank) {
    jobs[rank].rank = rank;
    jobs[rank].size = kRanks;
  }
  std::unique_ptr<Group> group;
  std::thread rank_zero([&] { group = join_group(jobs[0], {}, null_logger()); });
  std::vector<std::unique_ptr<net::Stream>> others;
  for (int rank = 1; rank < kRanks; ++rank) others.push_back(take_seat(jobs[rank]));
  rank_zero.join();
  for (const auto& other : others) hear_of_the_members(*other);
  for (const auto& other : others) {
    send_message(*other, static_cast<std::uint16_t>(MessageType::kLeave), {}, soon());
  }
  int messages = 0;
  for (int rank = 1; rank < kRanks; ++rank) {
    for (bool gone = false; !gone; ++messages) {
      const net::Message message = receive_message(*others[rank - 1], soon());
      ASSERT_EQ(message.type, static_cast<std::uint16_t>(MessageType::kLeft));
      for (const Exit& exit : decode_left(message.payload, kRanks)) gone = gone || exit.rank == rank;
    }
  }
  EXPECT_GE(messages, kRanks - 1);
  EXPECT_LE(messages, 50 * kRanks);  // One for each pair would be 512 for each rank.
  for (int rank = 1; rank < kRanks; ++rank) {
    group->wait_for_cause(rank, 0, soon());  // Rank 0 hears it in batches too, and perhaps as the last one.
    EXPECT_TRUE(group->has_left(rank)) << rank;
  }
  group->leave();
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
