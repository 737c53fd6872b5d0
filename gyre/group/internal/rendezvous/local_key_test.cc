// Under a foreign launcher the kernel's word about the user is all that stands between a job's key and others.
#include "gyre/group/internal/rendezvous/local_key.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>
#include <vector>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/net/socket.h"
#include "gyre/net/stream.h"

namespace gyre::group {
namespace {

using std::chrono::milliseconds;

Deadline soon() { return Deadline::after(milliseconds(10'000)); }

net::Endpoint own_name(std::string_view what) {
  return net::parse_endpoint(fmt::format("unix:@gyre-test-{}-{}", what, ::getpid()));
}

TEST(LocalKey, every_rank_gets_the_key_of_rank_zero_also_when_it_comes_first) {
  const net::Endpoint endpoint = own_name("key");
  const net::JobKey key = net::make_random_key();
  std::vector<net::JobKey> received(4);
  std::vector<std::thread> ranks;
  for (int rank = 1; rank < 4; ++rank) {
    ranks.emplace_back([&, rank] { received[rank] = fetch_local_key(endpoint, rank, soon()); });
  }
  hand_out_local_key(net::listen_on(endpoint), 4, key, soon());
  for (std::thread& rank : ranks) rank.join();
  for (int rank = 1; rank < 4; ++rank) EXPECT_EQ(received[rank], key);
}

TEST(LocalKey, who_says_nothing_or_nonsense_does_not_hold_up_the_ranks) {
  const net::Endpoint endpoint = own_name("nonsense");
  const net::JobKey key = net::make_random_key();
  const UniqueFd listener = net::listen_on(endpoint);
  const UniqueFd silent = net::connect_to(endpoint, soon());
  const auto odd = net::make_socket_stream(net::connect_to(endpoint, soon()), "rank 0");
  write_exactly(*odd, as_bytes("\xFF\xFF\xFF\xFF"), soon());
  std::thread rank([&] { EXPECT_EQ(fetch_local_key(endpoint, 1, soon()), key); });
  hand_out_local_key(listener, 2, key, soon());
  rank.join();
}

TEST(LocalKey, ranks_that_do_not_come_are_named) {
  const net::Endpoint endpoint = own_name("missing");
  std::thread rank([&] { fetch_local_key(endpoint, 2, soon()); });
  try {
    // Long enough for rank 2 to come on a loaded machine.
    hand_out_local_key(net::listen_on(endpoint), 4, net::make_random_key(), Deadline::after(milliseconds(1000)));
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kTimeout);
    EXPECT_NE(std::string(error.what()).find("ranks 1, 3 of a job of 4"), std::string::npos) << error.what();
  }
  rank.join();
}

}  // namespace
}  // namespace gyre::group
