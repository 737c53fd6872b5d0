// What only the socket back end must survive: strangers at its doors, ranks that are missing, double, killed or slow,
// and being joined again and again by the same processes.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/base/fork.h"
#include "gyre/group/group.h"
#include "gyre/net/handshake.h"
#include "gyre/net/socket.h"
#include "tests/conformance/socket_ranks.h"
#include "tests/conformance/stopwatch.h"

namespace gyre::group {
namespace {

using std::chrono::milliseconds;

constexpr const char* kUnix = "unix:@gyre-test";
constexpr const char* kTcp = "tcp:127.0.0.1:0";

Deadline soon() { return Deadline::after(milliseconds(20'000)); }

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

/// All ranks meet: each sends its number to each and hears the other's.
void exchange(Group& group, std::uint64_t channel) {
  for (int peer = 0; peer < group.size(); ++peer) {
    if (peer == group.rank()) continue;
    const auto link = group.open_link(peer, channel, soon());
    const auto number = static_cast<std::byte>(group.rank());
    std::byte received{};
    write_exactly(*link, {&number, 1}, soon());
    read_exactly(*link, {&received, 1}, soon());
    EXPECT_EQ(std::to_integer<int>(received), peer);
  }
}

net::Hello hello_of(std::uint32_t rank, std::uint32_t acceptor, std::uint32_t purpose, std::uint64_t epoch = 0) {
  return {.rank = rank, .acceptor = acceptor, .purpose = purpose, .channel = 1, .epoch = epoch, .encrypts = true};
}

/// Everything that somebody without the key (or with it, but at the wrong door) may try at `endpoint` of `rank`.
/// Returns the connections that say nothing: they stay half-open as long as the caller keeps them.
std::vector<UniqueFd> molest(const net::Endpoint& endpoint, const net::JobKey& key, std::uint32_t rank = 0) {
  {
    const auto garbage = net::make_socket_stream(net::connect_to(endpoint, soon()), "door");
    write_exactly(*garbage, as_bytes(std::string(4096, 'x')), soon());
  }
  {
    const auto http = net::make_socket_stream(net::connect_to(endpoint, soon()), "door");
    write_exactly(*http, as_bytes("GET / HTTP/1.1\r\n\r\n"), soon());
  }
  const auto stranger = net::make_socket_stream(net::connect_to(endpoint, soon()), "door");
  EXPECT_EQ(
      failure_of([&] { prove_to_acceptor(*stranger, net::make_random_key(), hello_of(1, rank, 1), soon()); }).code(),
      ErrorCode::kAuthentication);
  const auto astray = net::make_socket_stream(net::connect_to(endpoint, soon()), "door");
  EXPECT_EQ(failure_of([&] { prove_to_acceptor(*astray, key, hello_of(3, rank + 1, 1), soon()); }).code(),
            ErrorCode::kAuthentication);
  for (const net::Hello& hello :
       {hello_of(0, rank, 1), hello_of(70'000, rank, 1), hello_of(1, rank, 9), hello_of(1, rank, 2, 12345)}) {
    const auto confused = net::make_socket_stream(net::connect_to(endpoint, soon()), "door");
    EXPECT_EQ(failure_of([&] { prove_to_acceptor(*confused, key, hello, soon()); }).code(), ErrorCode::kPeerLost);
  }
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 300; ++i) silent.push_back(net::connect_to(endpoint, soon()));
  return silent;
}

TEST(SocketGroup, strangers_at_the_rendezvous_keep_nobody_out_before_and_after_the_group_is_complete) {
  for (const char* kind : {kUnix, kTcp}) {
    const auto jobs = make_jobs(4, kind);
    std::vector<UniqueFd> silent;
    // Rank 0 must be there to accept them; nobody else is yet.
    std::thread early([&] {
      run_jobs({jobs[0]}, [&](Group& group) {
        exchange(group, 1);
        const auto more = molest(jobs[0].rendezvous, jobs[0].key);
        exchange(group, 2);
        EXPECT_FALSE(group.abort_signal().triggered());
      });
    });
    silent = molest(jobs[0].rendezvous, jobs[0].key);
    run_jobs({jobs[1], jobs[2], jobs[3]}, [](Group& group) {
      exchange(group, 1);
      exchange(group, 2);
      EXPECT_FALSE(group.abort_signal().triggered());
    });
    early.join();
  }
}

TEST(SocketGroup, strangers_at_the_link_sockets_are_refused_and_the_job_goes_on) {
  const auto jobs = make_jobs(3, kTcp);
  const std::vector<std::string> hosts{"a", "b", "b"};
  run_jobs(
      jobs,
      [&](Group& group) {
        std::vector<std::vector<UniqueFd>> silent;
        if (group.rank() == 2) {
          for (int rank = 0; rank < 3; ++rank) {
            for (const auto& endpoint : group.topology().member(rank).endpoints) {
              silent.push_back(molest(endpoint, jobs[0].key, static_cast<std::uint32_t>(rank)));
            }
          }
        }
        exchange(group, 5);
        EXPECT_FALSE(group.abort_signal().triggered());
      },
      hosts);
}

TEST(SocketGroup, a_wave_of_strangers_keeps_no_link_from_being_made) {
  const auto jobs = make_jobs(3, kUnix);
  run_jobs(jobs, [&](Group& group) {
    std::jthread wave;
    if (group.rank() == 2) {
      wave = std::jthread([endpoint = group.topology().member(0).endpoints.front()] {
        std::deque<UniqueFd> silent;  // More than the door keeps, so that it closes the oldest, and members with them.
        for (int i = 0; i < 2'000; ++i) {
          silent.push_back(net::connect_to(endpoint, soon()));
          if (silent.size() > 400) silent.pop_front();
        }
      });
    }
    for (std::uint64_t channel = 1; channel <= 30; ++channel) exchange(group, channel);
    if (wave.joinable()) wave.join();
    exchange(group, 31);  // The door is open until the wave is over.
    EXPECT_FALSE(group.abort_signal().triggered());
  });
}

TEST(SocketGroup, a_half_open_connection_is_closed_after_the_handshake_timeout) {
  const auto jobs = make_jobs(2, kUnix);
  GroupOptions options;
  options.handshake_timeout = milliseconds(50);
  run_jobs(
      jobs,
      [&](Group& group) {
        if (group.rank() == 0) {
          const auto silent = net::make_socket_stream(net::connect_to(jobs[0].rendezvous, soon()), "door");
          std::byte byte{};
          EXPECT_EQ(failure_of([&] { read_exactly(*silent, {&byte, 1}, soon()); }).code(), ErrorCode::kPeerLost);
        }
        exchange(group, 1);
      },
      {}, options);
}

TEST(SocketGroup, missing_ranks_are_named_on_every_rank_that_came) {
  auto jobs = make_jobs(4, kUnix);
  GroupOptions options;
  options.join_timeout = milliseconds(200);
  std::vector<std::thread> threads;
  for (const int rank : {0, 2}) {
    threads.emplace_back([&, rank] {
      const Error error = failure_of([&] { join_group(jobs[rank], options, null_logger()); });
      EXPECT_EQ(error.code(), ErrorCode::kTimeout);
      EXPECT_TRUE(contains(error, "ranks 1, 3 of a job of 4 did not join")) << error.what();
      EXPECT_TRUE(contains(error, fmt::format("rank {} of 4 cannot join", rank))) << error.what();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(SocketGroup, a_missing_rank_zero_is_a_timeout_that_names_the_rendezvous) {
  auto jobs = make_jobs(2, kUnix);
  jobs[0].listener.reset();
  GroupOptions options;
  options.join_timeout = milliseconds(50);
  const Error error = failure_of([&] { join_group(jobs[1], options, null_logger()); });
  EXPECT_EQ(error.code(), ErrorCode::kTimeout);
  EXPECT_TRUE(contains(error, jobs[1].rendezvous.host)) << error.what();
}

TEST(SocketGroup, impostors_and_processes_of_another_size_are_told_and_the_job_goes_on) {
  const auto jobs = make_jobs(3, kUnix);
  run_jobs(jobs, [&](Group& group) {
    exchange(group, 1);
    if (group.rank() == 2) {
      const Error twice = failure_of([&] { join_group(jobs[1], {}, null_logger()); });
      EXPECT_EQ(twice.code(), ErrorCode::kMismatch);
      EXPECT_TRUE(contains(twice, "claims a rank that rank 1")) << twice.what();
      Job other = jobs[1];
      other.size = 5;
      other.rank = 4;
      const Error size = failure_of([&] { join_group(other, {}, null_logger()); });
      EXPECT_EQ(size.code(), ErrorCode::kMismatch);
      EXPECT_TRUE(contains(size, "5 ranks")) << size.what();
      other = jobs[1];
      other.key = net::make_random_key();
      EXPECT_EQ(failure_of([&] { join_group(other, {}, null_logger()); }).code(), ErrorCode::kAuthentication);
    }
    exchange(group, 2);
    EXPECT_FALSE(group.abort_signal().triggered());
  });
}

TEST(SocketGroup, a_place_outside_of_the_job_is_an_invalid_argument) {
  Job job;
  job.rank = 3;
  job.size = 3;
  EXPECT_EQ(failure_of([&] { join_group(job, {}, null_logger()); }).code(), ErrorCode::kInvalidArgument);
}

TEST(SocketGroup, the_same_processes_join_again_and_again) {
  for (const char* kind : {kUnix, kTcp}) {
    const auto jobs = make_jobs(4, kind);
    std::vector<std::thread> threads;
    const testing::Stopwatch watch;
    for (const Job& job : jobs) {
      threads.emplace_back([&job] {
        // No rank waits for the others between its leaving and its next joining.
        for (int round = 0; round < 10; ++round) {
          const auto group = join_group(job, {}, null_logger());
          exchange(*group, 1);
          group->leave();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_LT(watch.elapsed(), GroupOptions{}.longest_farewell) << "somebody waited for its farewell";
  }
}

TEST(SocketGroup, a_group_can_be_joined_again_after_it_failed) {
  const auto jobs = make_jobs(3, kUnix);
  std::vector<std::thread> threads;
  for (const Job& job : jobs) {
    threads.emplace_back([&job] {
      for (int round = 0; round < 5; ++round) {
        const auto group = join_group(job, {}, null_logger());
        if (job.rank == round % 3) group->abort(Error(ErrorCode::kInternal, fmt::format("round {}", round)));
        net::wait_for(group->abort_signal().fd(), POLLIN, soon(), "the abort");
        EXPECT_TRUE(contains(*group->abort_signal().reason(), fmt::format("round {}", round)));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(SocketGroup, rank_zero_may_leave_first_and_the_others_in_their_own_time) {
  const auto jobs = make_jobs(3, kUnix);
  run_jobs(jobs, [&](Group& group) {
    exchange(group, 1);
    if (group.rank() == 0) return;
    // The news of rank 0's leave arrives while this rank is still a member.
    EXPECT_EQ(group.cause_of_loss(0, Error(ErrorCode::kInternal, "no news")).code(), ErrorCode::kPeerLeft);
    EXPECT_FALSE(group.abort_signal().triggered());
    const auto link = group.open_link(3 - group.rank(), 2, soon());
    const testing::Stopwatch watch;
    group.leave();
    EXPECT_LT(watch.elapsed(), milliseconds(1'000));
  });
}

TEST(SocketGroup, a_rank_that_does_not_leave_holds_rank_zero_no_longer_than_the_limit) {
  const auto jobs = make_jobs(2, kUnix);
  GroupOptions options;
  options.longest_farewell = milliseconds(1'500);
  const auto start = SteadyClock::now();
  const auto body = [&](Group& group) {
    const testing::Stopwatch watch;
    if (group.rank() == 0) {
      group.leave();
      EXPECT_LT(watch.elapsed(), options.longest_farewell + milliseconds(1'000));
      return;
    }
    net::wait_for(group.abort_signal().fd(), POLLIN, soon(), "the end of the rendezvous");
    EXPECT_EQ(group.abort_signal().reason()->code(), ErrorCode::kPeerLeft);
    EXPECT_GE(SteadyClock::now() - start, options.longest_farewell - milliseconds(100));
  };
  run_jobs(jobs, body, {}, options);
}

// --- Real processes, because death is the subject. ---

/// Forked ranks; each runs `body` and ends with what it returns as its exit code.
class Processes {
 public:
  Processes(const std::vector<Job>& jobs, const std::function<int(Group&)>& body) {
    for (const Job& job : jobs) {
      const pid_t process = fork_with_listener();
      if (process == 0) ::_exit(run(job, body));
      processes_.push_back(process);
    }
  }
  ~Processes() {
    for (int rank = 0; rank < static_cast<int>(processes_.size()); ++rank) {
      if (process(rank) < 0) continue;
      kill(rank);
      wait(rank);
    }
  }
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  pid_t process(int rank) const { return processes_[static_cast<std::size_t>(rank)]; }
  void kill(int rank) const {
    ASSERT_GT(process(rank), 0);
    ::kill(process(rank), SIGKILL);
  }
  /// Its exit code; -1 when a signal ended it.
  int wait(int rank) {
    int status = 0;
    ::waitpid(std::exchange(processes_[static_cast<std::size_t>(rank)], -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  /// The job's listening socket was made before the ranks were.
  static pid_t fork_with_listener() {
    const KeepAllInFork keep;
    return ::fork();
  }
  static int run(const Job& job, const std::function<int(Group&)>& body) {
    try {
      const auto group = join_group(job, {}, null_logger());
      return body(*group);
    } catch (const std::exception& error) {
      fmt::print(stderr, "rank {}: {}\n", job.rank, error.what());
      return 99;
    }
  }

  std::vector<pid_t> processes_;
};

/// Counts processes that have come to a point.
class Milestone {
 public:
  Milestone() { EXPECT_EQ(::pipe(ends_), 0); }
  ~Milestone() {
    ::close(ends_[0]);
    ::close(ends_[1]);
  }
  Milestone(const Milestone&) = delete;
  Milestone& operator=(const Milestone&) = delete;

  void reach() const { EXPECT_EQ(::write(ends_[1], "x", 1), 1); }
  void wait_for_all(int count) const {
    char byte = 0;
    for (int i = 0; i < count; ++i) {
      net::wait_for(ends_[0], POLLIN, soon(), "the processes");
      EXPECT_EQ(::read(ends_[0], &byte, 1), 1);
    }
  }

 private:
  int ends_[2] = {-1, -1};
};

constexpr int kHeardTheRightNews = 7;

/// Waits for the group to fail; `kHeardTheRightNews` when the reason names the dead rank.
int expect_death_of(int dead, Group& group) {
  net::wait_for(group.abort_signal().fd(), POLLIN, soon(), "the news of the death");
  const Error reason = *group.abort_signal().reason();
  const bool right = reason.code() == ErrorCode::kPeerLost && contains(reason, fmt::format("rank {} (host ", dead)) &&
                     contains(reason, fmt::format("pid {}", group.topology().member(dead).process));
  if (!right) fmt::print(stderr, "rank {} heard: {}\n", group.rank(), reason.what());
  return right ? kHeardTheRightNews : 1;
}

TEST(SocketGroupProcesses, a_killed_rank_is_named_within_a_second_by_all_others) {
  for (const char* kind : {kUnix, kTcp}) {
    for (int dead = 0; dead < 4; ++dead) {
      const auto jobs = make_jobs(4, kind);
      const Milestone together;
      Processes processes(jobs, [&](Group& group) {
        exchange(group, 1);
        together.reach();
        return expect_death_of(dead, group);
      });
      together.wait_for_all(4);
      const testing::Stopwatch watch;
      processes.kill(dead);
      for (int rank = 0; rank < 4; ++rank) {
        EXPECT_EQ(processes.wait(rank), rank == dead ? -1 : kHeardTheRightNews) << "rank " << rank;
      }
      EXPECT_LT(watch.elapsed(), milliseconds(1'000));
    }
  }
}

TEST(SocketGroupProcesses, a_killed_rank_is_noticed_though_its_child_still_holds_its_sockets) {
  for (int dead = 0; dead < 2; ++dead) {
    const auto jobs = make_jobs(2, kUnix);
    const Milestone together;
    const Milestone end;
    Processes processes(jobs, [&](Group& group) {
      exchange(group, 1);
      if (group.rank() == dead && ::fork() == 0) {
        // A data loader's worker, which outlives its parent until the test is over.
        try {
          end.wait_for_all(1);
        } catch (const Error&) {
          ::_exit(1);
        }
        ::_exit(0);
      }
      together.reach();
      return expect_death_of(dead, group);
    });
    together.wait_for_all(2);
    const testing::Stopwatch watch;
    processes.kill(dead);
    EXPECT_EQ(processes.wait(1 - dead), kHeardTheRightNews);
    EXPECT_LT(watch.elapsed(), milliseconds(1'000));
    end.reach();
  }
}

TEST(SocketGroupProcesses, an_exception_that_unwinds_a_rank_is_an_abort_and_not_a_farewell) {
  const auto jobs = make_jobs(2, kUnix);
  Processes processes(jobs, [](Group& group) -> int {
    exchange(group, 1);
    if (group.rank() == 1) throw Error(ErrorCode::kInvalidArgument, "this is expected in the test's output");
    net::wait_for(group.abort_signal().fd(), POLLIN, soon(), "the abort");
    return group.abort_signal().reason()->code() == ErrorCode::kAborted ? kHeardTheRightNews : 1;
  });
  EXPECT_EQ(processes.wait(0), kHeardTheRightNews);
  EXPECT_EQ(processes.wait(1), 99);
}

}  // namespace
}  // namespace gyre::group
