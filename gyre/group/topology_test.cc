// Every rank derives hosts and local ranks from the same list; a difference would deadlock collectives.
#include "gyre/group/topology.h"

#include <gtest/gtest.h>

namespace gyre::group {
namespace {

std::vector<Member> members(const std::vector<std::string>& hosts) {
  std::vector<Member> result;
  for (const std::string& host : hosts) {
    Member member;
    member.rank = static_cast<int>(result.size());
    member.host_id = host + "-id";
    member.host_name = host;
    member.process = 100 + member.rank;
    result.push_back(member);
  }
  return result;
}

TEST(Topology, hosts_come_in_the_order_of_their_lowest_rank) {
  const Topology topology(members({"b", "a", "b", "c", "a"}), 4);
  const std::vector<std::vector<int>> hosts{{0, 2}, {1, 4}, {3}};
  EXPECT_EQ(topology.hosts(), hosts);
  EXPECT_EQ(topology.host_index(), 1);
  EXPECT_EQ(topology.local_rank(), 1);
  EXPECT_EQ(topology.local_size(), 2);
  EXPECT_FALSE(topology.one_host());
  EXPECT_EQ(topology.describe(3), "rank 3 (host c, pid 103)");
}

TEST(Topology, one_host_has_all_ranks) {
  const Topology topology(members({"a", "a", "a"}), 2);
  EXPECT_TRUE(topology.one_host());
  EXPECT_EQ(topology.local_rank(), 2);
  EXPECT_EQ(topology.local_ranks(), (std::vector<int>{0, 1, 2}));
}

TEST(Topology, this_host_has_a_stable_identity) {
  EXPECT_FALSE(this_host_id().empty());
  EXPECT_EQ(this_host_id(), this_host_id());
  EXPECT_FALSE(this_host_name().empty());
  EXPECT_NE(this_process_namespace(), 0U);
}

}  // namespace
}  // namespace gyre::group
