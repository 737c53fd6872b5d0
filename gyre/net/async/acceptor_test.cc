// All ranks of a job connect in the same moment, and strangers may come with them: neither may keep a rank out.
#include "gyre/net/async/acceptor.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/post.hpp>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/base/random.h"
#include "gyre/net/async/event_loop.h"
#include "gyre/net/socket.h"
#include "gyre/net/stream.h"

namespace gyre::net {
namespace {

Deadline soon() { return Deadline::after(std::chrono::milliseconds(30'000)); }

Hello hello_of(int rank) {
  return {.rank = static_cast<std::uint32_t>(rank), .acceptor = 0, .purpose = 1, .channel = 0, .epoch = 0};
}

/// An acceptor on its own thread; it keeps whom it has admitted.
class Door {
 public:
  Door(std::size_t expected, const std::string& where) {
    UniqueFd listener = listen_on(parse_endpoint(where));
    endpoint_ = local_endpoint(listener.get());
    AcceptorOptions options;
    options.what = "the door";
    options.key = key_;
    options.expected = expected;
    options.encrypt = false;
    options.logger = null_logger();
    options.check = [](const Hello&) {};
    options.admitted = [this](const Hello& hello, std::shared_ptr<AsyncSocket> socket,
                              const std::shared_ptr<TlsSession>&) {
      const std::lock_guard lock(mutex_);
      admitted_.push_back(static_cast<int>(hello.rank));
      sockets_.push_back(std::move(socket));
    };
    acceptor_ = std::make_shared<Acceptor>(loop_.context(), std::move(options));
    asio::post(loop_.context(), [this, fd = std::move(listener)]() mutable { acceptor_->listen(std::move(fd)); });
  }
  ~Door() { loop_.stop(); }
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;

  const JobKey& key() const { return key_; }
  const Endpoint& endpoint() const { return endpoint_; }
  std::vector<int> admitted() {
    const std::lock_guard lock(mutex_);
    std::vector<int> ranks = admitted_;
    std::sort(ranks.begin(), ranks.end());
    return ranks;
  }

 private:
  EventLoop loop_;  // Outlives the sockets.
  JobKey key_ = make_random_key();
  Endpoint endpoint_;
  std::mutex mutex_;
  std::vector<int> admitted_;
  std::vector<std::shared_ptr<AsyncSocket>> sockets_;
  std::shared_ptr<Acceptor> acceptor_;
};

/// Room for the descriptors of both sides.
class OpenFiles {
 public:
  explicit OpenFiles(rlim_t most) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = std::min(most, before_.rlim_max);
    ::setrlimit(RLIMIT_NOFILE, &limit);
  }
  ~OpenFiles() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  OpenFiles(const OpenFiles&) = delete;
  OpenFiles& operator=(const OpenFiles&) = delete;

 private:
  rlimit before_{};
};

/// As a rank does, it comes again when it is displaced.
void join(Door& door, int rank) {
  for (int tries = 1;; ++tries) {
    const auto stream = make_socket_stream(connect_to(door.endpoint(), soon()), "the door");
    try {
      prove_to_acceptor(*stream, door.key(), hello_of(rank), soon());
      return;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kPeerLost || tries == 50) throw;
    }
  }
}

TEST(Acceptor, members_that_come_in_the_same_moment_do_not_displace_each_other) {
  constexpr int kMembers = 300;
  const OpenFiles both_sides(4'096);
  Door door(kMembers, "tcp:127.0.0.1:0");
  // All are connected before the first says a word, and all have opened before the first proves.
  std::vector<std::unique_ptr<Stream>> streams;
  std::vector<Opening> openings;
  for (int rank = 0; rank < kMembers; ++rank) {
    streams.push_back(make_socket_stream(connect_to(door.endpoint(), soon()), "the door"));
  }
  for (int rank = 0; rank < kMembers; ++rank) {
    Nonce nonce;
    fill_with_secure_random(nonce);
    openings.push_back(encode_opening(hello_of(rank), nonce));
    write_exactly(*streams[static_cast<std::size_t>(rank)], openings.back(), soon());
  }
  std::vector<Answer> answers(kMembers);
  for (std::size_t i = 0; i < kMembers; ++i) read_exactly(*streams[i], answers[i], soon());
  std::vector<int> expected;
  for (std::size_t i = 0; i < kMembers; ++i) {
    write_exactly(*streams[i], check_answer_and_prove(door.key(), openings[i], answers[i]), soon());
    std::byte welcome{};
    read_exactly(*streams[i], {&welcome, 1}, soon());
    EXPECT_EQ(welcome, kWelcome);
    expected.push_back(static_cast<int>(i));
  }
  while (door.admitted().size() < kMembers) std::this_thread::yield();  // The last welcome precedes its callback.
  EXPECT_EQ(door.admitted(), expected);
}

/// Connects again and again, says nothing, and keeps the last 500 connections.
void flood(const Endpoint& endpoint, const std::atomic<bool>& over) {
  std::deque<UniqueFd> silent;
  while (!over) {
    silent.push_back(connect_to(endpoint, soon()));
    if (silent.size() > 500) silent.pop_front();
  }
}

TEST(Acceptor, a_flood_of_strangers_that_say_nothing_keeps_no_member_out) {
  const OpenFiles both_sides(8'192);
  // A unix socket whose queue is full turns new connections away, so its members have to wait for their turn.
  const std::string local = fmt::format("unix:@gyre-acceptor-test-{}", ::getpid());
  for (const auto& [where, members] : {std::pair<std::string, int>("tcp:127.0.0.1:0", 100), {local, 20}}) {
    Door door(static_cast<std::size_t>(members), where);
    std::atomic<bool> over{false};
    std::vector<std::thread> floods;
    floods.reserve(2);
    for (int i = 0; i < 2; ++i) floods.emplace_back([&] { flood(door.endpoint(), over); });
    std::vector<int> expected;
    for (int rank = 0; rank < members; ++rank) {
      EXPECT_NO_THROW(join(door, rank)) << "rank " << rank;
      expected.push_back(rank);
    }
    over = true;
    for (std::thread& thread : floods) thread.join();
    while (static_cast<int>(door.admitted().size()) < members) std::this_thread::yield();
    EXPECT_EQ(door.admitted(), expected);
  }
}

TEST(Acceptor, strangers_that_hold_all_descriptors_make_room_for_a_member) {
  Door door(200, "tcp:127.0.0.1:0");
  join(door, 1);  // It is open.
  // Both sides are in this process: the strangers, the member and the door share what there is.
  std::vector<std::unique_ptr<Stream>> strangers;
  for (int i = 0; i < 100; ++i) {
    strangers.push_back(make_socket_stream(connect_to(door.endpoint(), soon()), "the door"));
    write_exactly(*strangers.back(), encode_opening(hello_of(i), Nonce{}), soon());
    Answer answer;
    read_exactly(*strangers.back(), answer, soon());  // It has a descriptor of the door's.
  }
  UniqueFd member = connect_to(door.endpoint(), soon());
  const OpenFiles few(static_cast<rlim_t>(member.get()) + 1);
  const auto stream = make_socket_stream(std::move(member), "the door");
  EXPECT_NO_THROW(prove_to_acceptor(*stream, door.key(), hello_of(7), soon()));
}

}  // namespace
}  // namespace gyre::net
