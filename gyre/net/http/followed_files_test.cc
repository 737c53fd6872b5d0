// Logs are read while they are written, by many at once: what each is sent must be what the file had, to its last byte.
#include "gyre/net/http/followed_files.h"

#include <atomic>
#include <random>
#include <thread>

#include "gyre/net/http/file_test_support.h"
#include "gyre/net/http/test_support.h"

namespace gyre::net::http {
namespace {

class FollowedFilesTest : public FileTest {
 protected:
  void SetUp() override {
    Router router;
    router.add({.method = Method::kGet, .pattern = "/follow", .handler = [this](Request&) {
                  Response response;
                  response.source = over_http_.follow(open(), 2, "job", [this] { return ended_.load(); });
                  return response;
                }});
    server_ = std::make_unique<Server>(loopback_options(), std::move(router));
    client_ = std::make_unique<RawClient>(server_->endpoints()[0]);
  }
  void TearDown() override { server_.reset(); }

  std::shared_ptr<BodySource> follow(std::uint64_t offset, const std::string& writer = "job") {
    return files_.follow(open(), offset, writer, [this] {
      ++asked_;
      return ended_.load();
    });
  }

  FollowedFiles files_{std::chrono::hours(1)};
  FollowedFiles over_http_;
  std::atomic<bool> ended_ = false;
  std::atomic<int> asked_ = 0;
  std::unique_ptr<Server> server_;
  std::unique_ptr<RawClient> client_;
};

TEST_F(FollowedFilesTest, one_that_waits_keeps_no_memory) {
  const auto source = follow(0);
  const BodySource::Piece all = source->read(1 << 16);
  EXPECT_FALSE(all.bytes.empty());
  EXPECT_EQ(all.bytes.capacity(), std::string(all.bytes.data(), all.bytes.size()).capacity());
  EXPECT_EQ(source->read(1 << 16).bytes.capacity(), std::string().capacity());
}

TEST_F(FollowedFilesTest, a_followed_file_comes_to_its_last_byte) {
  client_->write(get("/follow"));
  client_->read_until("23456789");
  for (int i = 0; i < 20; ++i) {
    append("line " + std::to_string(i) + "\n");
    client_->read_until("line " + std::to_string(i) + "\n");
  }
  append("the last line, without an end");
  ended_ = true;
  EXPECT_NE(client_->read_until("\r\n0\r\n\r\n").find("the last line, without an end"), std::string::npos);
}

TEST_F(FollowedFilesTest, nothing_written_just_before_the_end_is_lost) {
  // The writer ends at any moment of the follower's: what it wrote before has to come all the same.
  for (int round = 0; round < 50; ++round) {
    write("01");
    ended_ = false;
    client_->write(get("/follow"));
    client_->read_until("\r\n\r\n");
    std::thread writer([this, round] {
      std::this_thread::sleep_for(std::chrono::microseconds(2'000 * round));
      append("last");
      ended_ = true;
    });
    EXPECT_EQ(client_->read_until("0\r\n\r\n"), "4\r\nlast\r\n0\r\n\r\n") << round;
    writer.join();
  }
}

TEST_F(FollowedFilesTest, a_file_that_shrinks_cuts_the_response_off) {
  client_->write(get("/follow"));
  client_->read_until("23456789");
  write("0");
  EXPECT_EQ(client_->read_all().find("0\r\n\r\n"), std::string::npos);
}

// A thousand followers of one log: one looks, and asks whether the job has ended; the others take what it has seen.
TEST_F(FollowedFilesTest, what_one_has_seen_is_at_hand_for_the_others_of_the_same_writer) {
  const auto first = follow(0);
  const auto second = follow(4);
  const auto at_the_end = follow(10);
  const auto of_another = follow(4, "another job");
  EXPECT_FALSE(second->read_at_hand(100));
  EXPECT_EQ(first->read(100).bytes, "0123456789");
  EXPECT_FALSE(of_another->read_at_hand(100));
  const auto some = second->read_at_hand(4);
  ASSERT_TRUE(some);
  EXPECT_EQ(some->bytes, "4567");
  const auto rest = second->read_at_hand(100);
  ASSERT_TRUE(rest);
  EXPECT_EQ(rest->bytes, "89");
  EXPECT_FALSE(rest->end);
  ended_ = true;
  EXPECT_TRUE(first->read(100).end);
  EXPECT_EQ(asked_, 1);
  const auto end = at_the_end->read_at_hand(100);
  ASSERT_TRUE(end);
  EXPECT_TRUE(end->bytes.empty());
  EXPECT_TRUE(end->end);
  const auto late = follow(4);  // The end is known; what comes before it is sent all the same.
  const auto before_the_end = late->read_at_hand(100);
  ASSERT_TRUE(before_the_end);
  EXPECT_EQ(before_the_end->bytes, "456789");
  EXPECT_FALSE(before_the_end->end);
}

TEST_F(FollowedFilesTest, what_was_seen_is_not_at_hand_for_long) {
  FollowedFiles files;
  const auto first = files.follow(open(), 0, "job", [] { return false; });
  const auto second = files.follow(open(), 0, "job", [] { return false; });
  first->read(100);
  const auto deadline = SteadyClock::now() + std::chrono::seconds(10);
  std::optional<BodySource::Piece> piece;
  do {
    piece = second->read_at_hand(1);
    ASSERT_LT(SteadyClock::now(), deadline);
  } while (piece);
}

TEST_F(FollowedFilesTest, long_pieces_are_read_by_each) {
  write(std::string(20'000, 'x'));
  const auto first = follow(0);
  const auto second = follow(0);
  EXPECT_EQ(first->read(1 << 16).bytes.size(), 20'000);
  EXPECT_FALSE(second->read_at_hand(1 << 16));
  EXPECT_EQ(second->read(1 << 16).bytes.size(), 20'000);
}

// Followers that come, wait and read at random while the file grows by random pieces, and its writer ends: each has the
// file from where it began to its last byte.
TEST_F(FollowedFilesTest, each_of_many_has_the_file_to_its_last_byte) {
  FollowedFiles files;
  for (unsigned seed = 1; seed <= 15; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](std::size_t most) { return static_cast<std::size_t>(random() % most); };
    ended_ = false;
    std::string text = "begin";
    write(text);
    struct Follower {
      std::shared_ptr<BodySource> source;
      std::size_t begin;
      std::string got;
      bool end = false;
    };
    std::vector<Follower> followers;
    for (int step = 0; step < 600; ++step) {
      if (followers.size() < 12 && below(20) == 0) {
        const std::size_t begin = below(text.size() + 1);
        followers.push_back({files.follow(open(), begin, "job", [this] { return ended_.load(); }), begin, {}});
      }
      if (!ended_ && below(3) == 0) {
        std::string piece(below(20) == 0 ? below(40'000) : below(30), static_cast<char>('a' + below(26)));
        append(piece);
        text += piece;
      }
      if (step > 500 && below(30) == 0) ended_ = true;
      if (below(100) == 0) std::this_thread::sleep_for(std::chrono::milliseconds(below(30)));
      if (followers.empty()) continue;
      Follower& one = followers[below(followers.size())];
      if (one.end) continue;
      const std::size_t most = 1 + below(50'000);
      std::optional<BodySource::Piece> piece = one.source->read_at_hand(most);
      if (!piece) piece = one.source->read(most);
      one.got += piece->bytes;
      one.end = piece->end;
    }
    ended_ = true;
    for (Follower& one : followers) {
      while (!one.end) {
        std::optional<BodySource::Piece> piece = one.source->read_at_hand(1 << 16);
        if (!piece) piece = one.source->read(1 << 16);
        one.got += piece->bytes;
        one.end = piece->end;
      }
      ASSERT_TRUE(one.got == text.substr(one.begin)) << seed << ": " << one.begin << ", " << one.got.size();
    }
  }
}

}  // namespace
}  // namespace gyre::net::http
