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

std::vector<net::Endpoint> own_places(std::string_view what) {
  return local_meeting_places(fmt::format("gyre-test-{}-{}", what, ::getpid()));
}

net::JobKey fetch(const std::vector<net::Endpoint>& places, int rank) {
  return fetch_local_key(places, rank, soon(), soon());
}

TEST(LocalKey, every_rank_gets_the_key_of_rank_zero_also_when_it_comes_first) {
  const std::vector<net::Endpoint> places = own_places("key");
  const net::JobKey key = net::make_random_key();
  std::vector<net::JobKey> received(4);
  std::vector<std::thread> ranks;
  for (int rank = 1; rank < 4; ++rank) {
    ranks.emplace_back([&, rank] { received[rank] = fetch(places, rank); });
  }
  hand_out_local_key(listen_for_local_ranks(places), 4, key, soon());
  for (std::thread& rank : ranks) rank.join();
  for (int rank = 1; rank < 4; ++rank) EXPECT_EQ(received[rank], key);
}

TEST(LocalKey, who_says_nothing_or_nonsense_does_not_hold_up_the_ranks) {
  const std::vector<net::Endpoint> places = own_places("nonsense");
  const net::JobKey key = net::make_random_key();
  const UniqueFd listener = listen_for_local_ranks(places);
  const UniqueFd silent = net::connect_to(places[0], soon());
  const auto odd = net::make_socket_stream(net::connect_to(places[0], soon()), "rank 0");
  write_exactly(*odd, as_bytes("\xFF\xFF\xFF\xFF"), soon());
  std::thread rank([&] { EXPECT_EQ(fetch(places, 1), key); });
  hand_out_local_key(listener, 2, key, soon());
  rank.join();
}

TEST(LocalKey, ranks_that_do_not_come_are_named) {
  const std::vector<net::Endpoint> places = own_places("missing");
  std::thread rank([&] { fetch(places, 2); });
  try {
    // Long enough for rank 2 to come on a loaded machine.
    hand_out_local_key(listen_for_local_ranks(places), 4, net::make_random_key(), Deadline::after(milliseconds(1000)));
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kTimeout);
    EXPECT_NE(std::string(error.what()).find("ranks 1, 3 of a job of 4"), std::string::npos) << error.what();
  }
  rank.join();
}

}  // namespace
}  // namespace gyre::group
