// Ranges of addresses decide which peers may connect: an error in parsing them would open a job, or close it.
#include "gyre/net/network.h"

#include <gtest/gtest.h>

#include <functional>

#include "gyre/base/error.h"

namespace gyre::net {
namespace {

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "no error was thrown";
}

TEST(Network, contains_the_addresses_of_its_prefix_and_no_others) {
  const struct {
    const char* network;
    const char* inside;
    const char* outside;
  } cases[] = {
      {"10.0.0.0/8", "10.255.1.2", "11.0.0.1"},
      {"10.1.2.3/8", "10.9.9.9", "9.255.255.255"},
      {"192.168.4.0/22", "192.168.7.255", "192.168.8.0"},
      {"192.168.4.7", "192.168.4.7", "192.168.4.6"},
      {"0.0.0.0/0", "1.2.3.4", "fd00::1"},
      {"10.0.0.0/8", "::ffff:10.1.1.1", "::ffff:11.1.1.1"},
      {"::ffff:10.0.0.0/104", "10.1.1.1", "11.1.1.1"},
      {"fd00::/8", "fdff::1", "fe00::1"},
      {"fd00::/7", "fcff::1", "fe00::1"},
      {"::1", "::1", "::2"},
      {"fe80::/10", "fe80::1%eth0", "fec0::1"},
      {"::/0", "10.1.1.1", "no address"},
  };
  for (const auto& one : cases) {
    const Network network(one.network);
    EXPECT_TRUE(network.contains(one.inside)) << one.network << " " << one.inside;
    EXPECT_FALSE(network.contains(one.outside)) << one.network << " " << one.outside;
  }
}

TEST(Network, what_is_not_a_network_is_one_error_that_shows_the_forms) {
  for (const char* text :
       {"", "10.0.0", "10.0.0.0/33", "fd00::/129", "10.0.0.0/", "10.0.0.0/-1", "host/8", "10.0.0.0/8/8"}) {
    const std::string message = message_of([&] { parse_networks(text, "GYRE_ALLOW"); });
    EXPECT_NE(message.find("GYRE_ALLOW"), std::string::npos) << message;
    EXPECT_NE(message.find(std::string("'") + text + "' is not a network"), std::string::npos) << message;
    EXPECT_NE(message.find("write ADDRESS or ADDRESS/BITS"), std::string::npos) << message;
  }
  EXPECT_EQ(parse_networks("10.0.0.0/8,fd00::/8", "GYRE_ALLOW").size(), 2U);
}

TEST(Network, this_hosts_address_in_a_network_is_found_or_the_others_are_listed) {
  EXPECT_EQ(own_address_in(Network("127.0.0.0/8"), "GYRE_BIND"), "127.0.0.1");
  EXPECT_EQ(own_address_in(Network("127.0.0.2"), "GYRE_BIND"), "127.0.0.2");
  const std::string message = message_of([] { own_address_in(Network("203.0.113.0/24"), "GYRE_BIND"); });
  EXPECT_NE(message.find("GYRE_BIND is '203.0.113.0/24', but no network interface"), std::string::npos) << message;
  EXPECT_NE(message.find("127.0.0.1"), std::string::npos) << message;
}

}  // namespace
}  // namespace gyre::net
