// Every rank derives hosts and local ranks from the same list; a difference would deadlock collectives.
#include "gyre/group/topology.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <string>

#include "gyre/base/file.h"

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
  EXPECT_FALSE(is_unknown_host(this_host_id()));
  EXPECT_NE(this_process_namespace(), 0U);
}

/// What `ask` says in a child process that runs in `namespaces`, or the error of entering them.
std::string in_namespaces(int namespaces, const std::function<std::string()>& ask) {
  int ends[2];
  EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd reading(ends[0]);
  UniqueFd writing(ends[1]);
  const pid_t child = ::fork();
  if (child == 0) {
    const std::string answer = ::unshare(namespaces) == 0 ? ask() : "unshare: " + std::to_string(errno);
    [[maybe_unused]] const ssize_t written = ::write(writing.get(), answer.data(), answer.size());
    ::_exit(0);
  }
  writing.reset();
  char text[256];
  const ssize_t length = ::read(reading.get(), text, sizeof(text));
  ::waitpid(child, nullptr, 0);
  return {text, static_cast<std::size_t>(std::max<ssize_t>(length, 0))};
}

TEST(Topology, only_another_network_namespace_is_another_host) {
  if (::geteuid() != 0) return;
  const std::string here = this_host_id();
  EXPECT_EQ(in_namespaces(CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWUTS | CLONE_NEWIPC, this_host_id), here);
  EXPECT_EQ(in_namespaces(CLONE_NEWUSER, this_host_id), here);
  const std::string there = in_namespaces(CLONE_NEWNET, this_host_id);
  EXPECT_NE(there, here);
  EXPECT_FALSE(is_unknown_host(there)) << there;
}

TEST(Topology, without_proc_every_process_is_a_host_of_its_own) {
  if (::geteuid() != 0) return;
  const auto hide_proc_and_ask = [] {
    if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return std::string("private");
    if (::mount("none", "/proc", "tmpfs", 0, nullptr) != 0) return std::string("tmpfs");
    return this_host_id();
  };
  const std::string first = in_namespaces(CLONE_NEWNS, hide_proc_and_ask);
  EXPECT_TRUE(is_unknown_host(first)) << first;
  EXPECT_NE(first, in_namespaces(CLONE_NEWNS, hide_proc_and_ask));
}

}  // namespace
}  // namespace gyre::group
