// An address is a claim: a link must be with the rank that was wanted, whoever answers at its address.
#include "gyre/group/internal/links/waits.h"

#include <gtest/gtest.h>

#include <boost/asio/post.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/base/log.h"
#include "gyre/net/async/acceptor.h"
#include "gyre/net/async/event_loop.h"
#include "gyre/net/socket.h"

namespace gyre::group {
namespace {

constexpr std::uint64_t kEpoch = 77;
constexpr std::uint64_t kChannel = 3;

Deadline soon() { return Deadline::after(std::chrono::milliseconds(20'000)); }

/// Ranks of one job that accept links at addresses of their own, all on one loop.
class Doors {
 public:
  Doors(const net::JobKey& key, bool encrypt, std::uint64_t epoch = kEpoch)
      : key_(key), encrypt_(encrypt), epoch_(epoch) {}
  ~Doors() { loop_.stop(); }
  Doors(const Doors&) = delete;
  Doors& operator=(const Doors&) = delete;

  /// A new address, behind which is `rank`.
  net::Endpoint open(std::uint32_t rank) {
    UniqueFd listener = net::listen_on(net::parse_endpoint("tcp:127.0.0.1:0"));
    net::Endpoint endpoint = net::local_endpoint(listener.get());
    net::AcceptorOptions options;
    options.what = "a door";
    options.key = key_;
    options.rank = rank;
    options.encrypt = encrypt_;
    options.logger = null_logger();
    options.check = [epoch = epoch_](const net::Hello& hello) {
      if (hello.epoch != epoch) throw Error(ErrorCode::kProtocol, "another epoch");
    };
    options.admitted = [rank](const net::Hello& hello, const std::shared_ptr<net::AsyncSocket>& socket,
                              const std::shared_ptr<net::TlsSession>& session) {
      // The first byte says who has admitted it.
      const UniqueFd connection = net::release_socket(*socket);
      const auto stream = session ? net::make_tls_stream(UniqueFd(::dup(connection.get())), session, "the connector")
                                  : borrow_as_stream(connection, "the connector");
      const auto name = static_cast<std::byte>(rank);
      write_exactly(*stream, {&name, 1}, soon());
      EXPECT_EQ(hello.acceptor, rank);
    };
    asio::post(loop_.context(), [this, options, listening = std::move(listener)]() mutable {
      acceptors_.push_back(std::make_shared<net::Acceptor>(loop_.context(), options));
      acceptors_.back()->listen(std::move(listening));
    });
    return endpoint;
  }

 private:
  net::JobKey key_;
  bool encrypt_;
  std::uint64_t epoch_;
  net::EventLoop loop_;
  std::vector<std::shared_ptr<net::Acceptor>> acceptors_;
};

/// What rank 2 sees of a job of three whose rank 0 claims `endpoints`.
Topology seen_by_rank_two(const std::vector<net::Endpoint>& endpoints) {
  std::vector<Member> members(3);
  for (int rank = 0; rank < 3; ++rank) {
    members[rank].rank = rank;
    members[rank].host_id = members[rank].host_name = "host-" + std::to_string(rank);
    members[rank].process = 100 + rank;
  }
  members[0].endpoints = endpoints;
  return {members, 2};
}

class WrongAddresses : public testing::TestWithParam<bool> {
 protected:
  /// Who rank 2 is linked with when it wants rank 0.
  int reached(const std::vector<net::Endpoint>& endpoints, Deadline deadline = soon()) {
    const Topology topology = seen_by_rank_two(endpoints);
    GroupState state(3);
    const net::Hello hello{.rank = 2,
                           .acceptor = 0,
                           .purpose = static_cast<std::uint32_t>(Purpose::kLink),
                           .channel = kChannel,
                           .epoch = kEpoch,
                           .encrypts = GetParam()};
    LinkConnection link = connect_to_peer(topology, 0, key_, hello, state, deadline);
    EXPECT_EQ(link.tls != nullptr, GetParam());
    const auto stream = link.tls ? net::make_tls_stream(std::move(link.socket), link.tls, "rank 0")
                                 : net::make_socket_stream(std::move(link.socket), "rank 0");
    std::byte name{};
    read_exactly(*stream, {&name, 1}, soon());
    return std::to_integer<int>(name);
  }

  std::string failure(const std::vector<net::Endpoint>& endpoints, Deadline deadline = soon()) {
    try {
      return "linked with rank " + std::to_string(reached(endpoints, deadline));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kAuthentication);
      return error.what();
    }
  }

  const net::JobKey key_ = net::make_random_key();
  Doors doors_{key_, GetParam()};
};

TEST_P(WrongAddresses, the_endpoints_that_remain_are_tried) {
  const net::Endpoint wrong = doors_.open(1);
  const net::Endpoint right = doors_.open(0);
  EXPECT_EQ(reached({right}), 0);
  EXPECT_EQ(reached({wrong, right}), 0);
  EXPECT_EQ(reached({wrong, doors_.open(2), right}), 0);  // The second one leads back to itself.
}

TEST_P(WrongAddresses, another_job_at_the_address_is_passed_over_too) {
  Doors other_job(net::make_random_key(), GetParam(), kEpoch + 1);
  EXPECT_EQ(reached({other_job.open(0), doors_.open(0)}), 0);
  EXPECT_NE(failure({other_job.open(0)}).find("does not know this job's key"), std::string::npos);
}

TEST_P(WrongAddresses, one_sentence_names_the_rank_that_was_wanted_and_the_one_that_answers) {
  const net::Endpoint wrong = doors_.open(1);
  const std::string sentence = failure({wrong});
  EXPECT_NE(sentence.find("rank 2 (host host-2, pid 102) wants to link with rank 0 (host host-0, pid 100), but rank 1 "
                          "(host host-1, pid 101) answers at " +
                          net::to_string(wrong)),
            std::string::npos)
      << sentence;
  EXPECT_NE(failure({doors_.open(2)}).find("but rank 2 (host host-2, pid 102) answers"), std::string::npos);
}

TEST_P(WrongAddresses, an_endpoint_at_which_nobody_listens_does_not_hide_who_answered_at_the_first) {
  const net::Endpoint wrong = doors_.open(1);
  UniqueFd closed = net::listen_on(net::parse_endpoint("tcp:127.0.0.1:0"));
  const net::Endpoint nobody = net::local_endpoint(closed.get());
  closed.reset();
  const std::string sentence = failure({wrong, nobody}, Deadline::after(std::chrono::milliseconds(500)));
  EXPECT_NE(sentence.find("rank 1 (host host-1, pid 101) answers at"), std::string::npos) << sentence;
}

INSTANTIATE_TEST_SUITE_P(Encryption, WrongAddresses, testing::Bool(),
                         [](const auto& parameter) { return parameter.param ? "tls" : "plain"; });

}  // namespace
}  // namespace gyre::group
