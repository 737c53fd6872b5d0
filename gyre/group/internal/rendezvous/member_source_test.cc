// The members reach most ranks through other ranks than rank 0. Those may be slow, leave, die or send something else:
// every rank must have the members all the same, or the reason why there is no group. Rank 1 is played by hand here.
#include "gyre/group/internal/rendezvous/member_source.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gyre/base/random.h"
#include "gyre/group/group.h"
#include "gyre/net/handshake.h"
#include "gyre/net/message.h"
#include "gyre/net/socket.h"

namespace gyre::group {
namespace {

using std::chrono::milliseconds;

constexpr int kRanks = 40;  // Ranks 17 to 32 have rank 1 for a source.

Deadline soon() { return Deadline::after(milliseconds(30'000)); }

std::vector<Job> make_jobs(int size, const net::Endpoint& rendezvous) {
  std::vector<Job> jobs(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    Job& job = jobs[static_cast<std::size_t>(rank)];
    job.rank = rank;
    job.size = size;
    job.rendezvous = rendezvous;
    job.key.fill(std::byte{7});
  }
  return jobs;
}

net::Endpoint new_name() {
  static std::atomic<int> names{0};
  return net::parse_endpoint(fmt::format("unix:@gyre-test-source-{}-{}", ::getpid(), ++names));
}

class PlayedRank {
 public:
  PlayedRank(const Job& job, const std::vector<net::Endpoint>& endpoints)
      : stream_(net::make_socket_stream(net::connect_to(job.rendezvous, soon()), "rank 0")) {
    net::Hello hello;
    hello.rank = static_cast<std::uint32_t>(job.rank);
    hello.purpose = static_cast<std::uint32_t>(Purpose::kMembership);
    hello.encrypts = job.encrypt;
    prove_to_acceptor(*stream_, job.key, hello, soon());
    Join join;
    join.size = job.size;
    join.member.rank = job.rank;
    join.member.host_id = "one";
    join.member.host_name = "here";
    join.member.process = 4711;
    join.member.endpoints = endpoints;
    send_message(*stream_, static_cast<std::uint16_t>(MessageType::kJoin), encode_join(join), soon());
  }

  void hear_of_the_members() {
    EXPECT_EQ(receive_message(*stream_, soon()).type, static_cast<std::uint16_t>(MessageType::kMembership));
    EXPECT_EQ(receive_message(*stream_, soon()).type, static_cast<std::uint16_t>(MessageType::kMembers));
  }
  void leave() { send_message(*stream_, static_cast<std::uint16_t>(MessageType::kLeave), {}, soon()); }
  void die() { stream_.reset(); }

 private:
  std::unique_ptr<net::Stream> stream_;
};

/// Runs all ranks but rank 1 as threads; `rank_one` plays it, and ends the group somehow. `check` gets what became of
/// each of the others.
void with_rank_one_played(const std::vector<net::Endpoint>& endpoints, const std::function<void(PlayedRank&)>& rank_one,
                          const std::function<void(Group*, const Error*)>& check) {
  const std::vector<Job> jobs = make_jobs(kRanks, new_name());
  GroupOptions options;
  options.host_id = "one";
  std::vector<std::thread> ranks;
  for (const Job& job : jobs) {
    if (job.rank == 1) continue;
    ranks.emplace_back([&] {
      std::unique_ptr<Group> group;
      try {
        group = join_group(job, options, null_logger());
      } catch (const Error& error) {
        return check(nullptr, &error);
      }
      check(group.get(), nullptr);
    });
  }
  PlayedRank played(jobs[1], endpoints);
  rank_one(played);
  for (std::thread& rank : ranks) rank.join();
}

void expect_all_members(const Group* group) {
  ASSERT_NE(group, nullptr);
  ASSERT_EQ(group->size(), kRanks);
  EXPECT_EQ(group->topology().member(1).process, 4711);
  for (int rank = 2; rank < kRanks; ++rank) EXPECT_EQ(group->topology().member(rank).process, ::getpid());
}

TEST(MemberSource, every_rank_has_the_same_members_wherever_the_ranks_are) {
  const std::uint64_t seed = 26;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  Random random(seed);
  for (int round = 0; round < 4; ++round) {
    const int size = 30 + static_cast<int>(random.below(50));
    const std::uint64_t hosts = 1 + random.below(round == 0 ? 1 : static_cast<std::uint64_t>(size));
    std::vector<std::string> host_ids;
    for (int rank = 0; rank < size; ++rank) host_ids.push_back(fmt::format("host{}", random.below(hosts)));
    const bool over_tcp = round % 2 == 1;
    std::vector<Job> jobs = make_jobs(size, new_name());
    if (over_tcp) {
      auto listener = std::make_shared<UniqueFd>(net::listen_on(net::parse_endpoint("tcp:127.0.0.1:0")));
      for (Job& job : jobs) job.rendezvous = net::local_endpoint(listener->get());
      jobs[0].listener = listener;
    }
    std::vector<std::unique_ptr<Group>> groups(jobs.size());
    std::vector<std::thread> ranks;
    for (const Job& job : jobs) {
      ranks.emplace_back([&, place = static_cast<std::size_t>(job.rank)] {
        GroupOptions options;
        options.host_id = host_ids[place];
        groups[place] = join_group(job, options, null_logger());
      });
    }
    for (std::thread& rank : ranks) rank.join();
    for (const auto& group : groups) {
      for (int rank = 0; rank < size; ++rank) {
        const Member& member = group->topology().member(rank);
        const Member& itself = groups[static_cast<std::size_t>(rank)]->topology().self();
        EXPECT_EQ(member.host_id, host_ids[static_cast<std::size_t>(rank)]);
        EXPECT_EQ(member.endpoints, itself.endpoints);
        EXPECT_EQ(member.endpoints.size(), over_tcp ? 2U : 1U);
      }
    }
    std::vector<std::thread> leaving;
    for (auto& group : groups) leaving.emplace_back([&group] { group.reset(); });
    for (std::thread& rank : leaving) rank.join();
  }
}

TEST(MemberSource, rank_zero_sends_the_members_where_nobody_can_be_asked) {
  with_rank_one_played(
      {},
      [](PlayedRank& rank_one) {
        rank_one.hear_of_the_members();
        rank_one.leave();
      },
      [](const Group* group, const Error*) { expect_all_members(group); });
}

TEST(MemberSource, a_source_that_leaves_before_it_has_answered_holds_up_nobody) {
  const net::Endpoint name = new_name();
  const UniqueFd listener = net::listen_on(name);
  const auto start = SteadyClock::now();
  with_rank_one_played(
      {name},
      [&](PlayedRank& rank_one) {
        rank_one.hear_of_the_members();
        net::wait_for(listener.get(), POLLIN, soon(), "a rank that wants the members");
        rank_one.leave();
      },
      [](Group* group, const Error*) {
        expect_all_members(group);
        group->wait_for_cause(1, 0, soon());  // What rank 0 said before the members is not lost.
        EXPECT_TRUE(group->has_left(1));
      });
  EXPECT_LT(SteadyClock::now() - start, kLongestSourceWait);
}

TEST(MemberSource, a_source_that_dies_is_named_at_once) {
  const net::Endpoint name = new_name();
  const UniqueFd listener = net::listen_on(name);
  const auto start = SteadyClock::now();
  with_rank_one_played(
      {name},
      [&](PlayedRank& rank_one) {
        rank_one.hear_of_the_members();
        net::wait_for(listener.get(), POLLIN, soon(), "a rank that wants the members");
        rank_one.die();
      },
      [](Group* group, const Error* failure) {
        Error reason = failure != nullptr ? *failure : Error(ErrorCode::kInternal, "none");
        if (group != nullptr) {
          group->wait_for_cause(0, 0, soon());
          EXPECT_TRUE(group->abort_signal().triggered());
          try {
            group->abort_signal().throw_if_triggered();
          } catch (const Error& error) {
            reason = error;
          }
        }
        EXPECT_EQ(reason.code(), ErrorCode::kPeerLost) << reason.what();
        EXPECT_NE(std::string(reason.what()).find("rank 1 (host here, pid 4711) died"), std::string::npos)
            << reason.what();
      });
  EXPECT_LT(SteadyClock::now() - start, kLongestSourceWait);
}

TEST(MemberSource, members_that_rank_zero_has_not_announced_are_not_taken) {
  const net::Endpoint name = new_name();
  const UniqueFd listener = net::listen_on(name);
  const SecretKey key = make_jobs(kRanks, name)[1].key;
  int asked = 0;
  with_rank_one_played(
      {name},
      [&](PlayedRank& rank_one) {
        rank_one.hear_of_the_members();
        Members others;
        for (int rank = 0; rank < kRanks; ++rank) {
          Member member;
          member.rank = rank;
          member.host_id = "one";
          others.members.push_back(member);
          others.on_rank_zeros_host.push_back(false);
        }
        for (; asked < 16; ++asked) {
          net::wait_for(listener.get(), POLLIN, soon(), "a rank that wants the members");
          const auto stream = net::make_socket_stream(net::accept_from(listener.get()), "a rank");
          net::admit_connector(*stream, key, 1, soon());
          send_message(*stream, static_cast<std::uint16_t>(MessageType::kMembers), encode_members(others), soon());
        }
        rank_one.leave();
      },
      [](const Group* group, const Error*) { expect_all_members(group); });
  EXPECT_EQ(asked, 16);
}

}  // namespace
}  // namespace gyre::group
