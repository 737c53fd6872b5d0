// A host has many addresses, and some of them lead nowhere: neither they nor a name server may hold up a job.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netdb.h>

#include <future>
#include <vector>

#include "gyre/net/internal/address.h"
#include "gyre/net/socket.h"

namespace gyre::net::internal {
namespace {

using std::chrono::milliseconds;

Deadline soon() { return Deadline::after(milliseconds(20'000)); }

Address address_of(const Endpoint& endpoint) { return resolve(endpoint, soon()).addresses.at(0); }

Endpoint tcp(const std::string& host, int port) {
  return {Endpoint::Kind::kTcp, host, static_cast<std::uint16_t>(port)};
}

/// Listens at an address that does not answer: its queue is full, so the kernel drops what comes.
struct SilentAddress {
  SilentAddress() : listener(listen_on(tcp("127.0.0.2", 0), 0)), address(address_of(local_endpoint(listener.get()))) {
    for (int i = 0; i < 3; ++i) {
      filling.push_back(make_socket(AF_INET));
      static_cast<void>(::connect(filling.back().get(), address.get(), address.length));
    }
  }
  UniqueFd listener;
  Address address;
  std::vector<UniqueFd> filling;
};

TEST(Connect, an_address_that_does_not_answer_gives_way_to_the_next_one) {
  const SilentAddress silent;
  const UniqueFd listener = listen_on(tcp("127.0.0.3", 0));
  const Address good = address_of(local_endpoint(listener.get()));
  const auto start = SteadyClock::now();
  const Connected connected = connect_to_any({silent.address, good}, soon(), [] {});
  ASSERT_TRUE(connected.socket);
  EXPECT_EQ(peer_endpoint(connected.socket.get()).host, "127.0.0.3");
  EXPECT_LT(SteadyClock::now() - start, milliseconds(15'000));  // It waits 250 ms; the deadline is 20 s.
}

TEST(Connect, a_refused_address_is_passed_over_at_once_and_a_deadline_ends_the_rest) {
  const UniqueFd listener = listen_on(tcp("127.0.0.3", 0));
  const Address good = address_of(local_endpoint(listener.get()));
  const Address refused = address_of(tcp("127.0.0.4", 1));
  EXPECT_TRUE(connect_to_any({refused, good}, soon(), [] {}).socket);
  EXPECT_EQ(connect_to_any({refused}, soon(), [] {}).failure, ECONNREFUSED);

  const SilentAddress silent;
  int calls = 0;
  EXPECT_EQ(connect_to_any({silent.address}, Deadline::after(milliseconds(300)), [&] { ++calls; }).failure, ETIMEDOUT);
  EXPECT_GT(calls, 0) << "nobody was asked whether waiting still makes sense";
}

TEST(Connect, the_families_take_turns) {
  const std::vector<Address> given{address_of(tcp("::1", 1)), address_of(tcp("::1", 2)), address_of(tcp("::1", 3)),
                                   address_of(tcp("127.0.0.1", 4)), address_of(tcp("127.0.0.1", 5))};
  std::vector<int> ports;
  for (const Address& address : in_turns(given)) ports.push_back(endpoint_of(address).port);
  EXPECT_EQ(ports, (std::vector<int>{1, 4, 2, 5, 3}));
}

TEST(Connect, a_name_server_that_does_not_answer_cannot_outlast_the_deadline) {
  std::promise<void> answer;
  const auto answered = answer.get_future().share();
  const Resolution late = within(Deadline::after(milliseconds(20)), [answered] {
    answered.wait();
    return Resolution{};
  });
  EXPECT_EQ(late.failure, EAI_AGAIN);
  answer.set_value();
  EXPECT_EQ(within(soon(), [] { return Resolution{{}, EAI_FAIL}; }).failure, EAI_FAIL);
}

}  // namespace
}  // namespace gyre::net::internal
