// What a person names with -H and --hostfile becomes hosts with ranks, or one sentence that says what is wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "gyre/base/error.h"
#include "gyre/launch/hosts.h"

namespace gyre::launch {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "accepted";
}

TEST(host_list, hosts_have_slots_and_perhaps_a_user) {
  EXPECT_THAT(parse_hosts("node1:4,ada@node2,,10.0.0.3:12"),
              ElementsAre(Host{"node1", 4}, Host{"ada@node2", 1}, Host{"10.0.0.3", 12}));
  EXPECT_THAT(parse_host_file("# ours\nnode1 slots=4\n\n  ada@node2:2  # new\r\nnode3\n"),
              ElementsAre(Host{"node1", 4}, Host{"ada@node2", 2}, Host{"node3", 1}));
}

TEST(host_list, what_makes_no_sense_is_one_sentence_with_its_place) {
  EXPECT_EQ(refusal([] { parse_hosts("a:0"); }), "-H: 'a:0': a host has 1 to 4096 slots");
  EXPECT_EQ(refusal([] { parse_hosts("a:99999999999"); }), "-H: 'a:99999999999': a host has 1 to 4096 slots");
  for (const char* word : {"-oProxyCommand=x:1", "a:b", "a b", "a:", ":1", "a:1:2", "a;b"}) {
    EXPECT_THAT(refusal([&] { parse_hosts(word); }), HasSubstr("is not a host with slots, like `node1:4`")) << word;
  }
  EXPECT_EQ(refusal([] { parse_host_file("a\nb 2 # two\n"); }),
            "--hostfile, line 2: 'b 2 # two' is not a line like `node1 slots=4`");
  EXPECT_EQ(refusal([] { parse_host_file("# nobody\n"); }), "--hostfile: it names no host");
  EXPECT_THAT(refusal([] { read_host_file("/nowhere/hosts"); }), HasSubstr("/nowhere/hosts"));
}

TEST(host_list, ranks_fill_the_hosts_in_their_order) {
  const std::vector<Host> hosts = {{"a", 2}, {"b", 2}, {"c", 2}};
  EXPECT_THAT(divide(hosts, 3), ElementsAre(Host{"a", 2}, Host{"b", 1}));
  EXPECT_EQ(divide(hosts, 0), hosts);
  EXPECT_EQ(refusal([&] { divide(hosts, 7); }),
            "-n 7: the hosts have 6 slots in all; give each host as many as ranks are to run there (-H a:3), else it "
            "has one");
  EXPECT_EQ(refusal([] { divide({}, 1); }), "-H: no host was named");
}

TEST(host_list, servers_take_turns_on_the_hosts_and_the_workers_keep_their_numbers) {
  const std::vector<Host> hosts = {{"a", 2}, {"b", 1}};
  EXPECT_EQ(place_servers(hosts, {}, 0), hosts);
  EXPECT_EQ(place_servers(hosts, {"c"}, 0), hosts);
  const std::vector<Host> together = place_servers(hosts, {}, 3);
  EXPECT_THAT(together, ElementsAre(Host{"a", 2, {0, 2}}, Host{"b", 1, {1}}));
  EXPECT_THAT(rank_numbers(together), ElementsAre(ElementsAre(0, 1, 3, 5), ElementsAre(2, 4)));
  const std::vector<Host> apart = place_servers(hosts, {"c", "d"}, 3);
  EXPECT_THAT(apart, ElementsAre(Host{"a", 2}, Host{"b", 1}, Host{"c", 0, {0, 2}}, Host{"d", 0, {1}}));
  EXPECT_THAT(rank_numbers(apart), ElementsAre(ElementsAre(0, 1), ElementsAre(2), ElementsAre(3, 5), ElementsAre(4)));
  // Hosts that get no server are not used, and one of -H can be named.
  EXPECT_THAT(place_servers(hosts, {"b", "c"}, 1), ElementsAre(Host{"a", 2}, Host{"b", 1, {0}}));
  EXPECT_EQ(refusal([] { place_servers({{"a", kMostRanksPerHost}}, {}, 1); }),
            "--servers 1: host a would run more than 4096 ranks");
}

TEST(host_list, hosts_of_servers_are_names_alone) {
  EXPECT_THAT(parse_server_hosts("c,,ada@d"), ElementsAre("c", "ada@d"));
  EXPECT_EQ(refusal([] { parse_server_hosts("c:2"); }),
            "--server-hosts: 'c:2': these hosts have no slots; give the name alone");
  EXPECT_EQ(refusal([] { parse_server_hosts("-oProxyCommand=x"); }),
            "--server-hosts: '-oProxyCommand=x' is not the name of a host");
  EXPECT_EQ(refusal([] { parse_server_hosts(","); }), "--server-hosts: no host was named");
}

TEST(host_list, this_machine_is_known_by_its_plain_names_alone) {
  EXPECT_TRUE((Host{"localhost", 1}.is_here()));
  EXPECT_TRUE((Host{host_name(), 1}.is_here()));
  EXPECT_FALSE((Host{"ada@localhost", 1}.is_here()));
  EXPECT_FALSE((Host{"127.0.0.2", 1}.is_here()));
}

TEST(host_list, words_are_divided_as_a_shell_does_it) {
  EXPECT_THAT(shell_words("ssh -F 'my config'  -o \"A=\\\"b\\\"\" c\\ d ''", "--ssh"),
              ElementsAre("ssh", "-F", "my config", "-o", "A=\"b\"", "c d", ""));
  EXPECT_THAT(shell_words("  ", "--ssh"), ElementsAre());
  EXPECT_EQ(refusal([] { shell_words("ssh 'a", "--ssh"); }), "--ssh is `ssh 'a`, in which a quote is not closed");
}

}  // namespace
}  // namespace gyre::launch
