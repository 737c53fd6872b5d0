#include "gyre/jobs/node/code_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gyre/base/checksum.h"
#include "gyre/jobs/orders/messages.h"

namespace gyre::jobs::node {
namespace {

namespace fs = std::filesystem;
namespace message_type = orders::message_type;
using testing::HasSubstr;

constexpr std::uint64_t kWindow = std::uint64_t{1} << 20;

std::string sha256_of(const std::string& text) { return hex(sha256(as_bytes(text))); }

/// A cache, and a service whose archives are strings.
class CodeCacheTest : public testing::Test {
 protected:
  CodeCacheTest() {
    std::string name = "/tmp/gyre-codes-XXXXXX";
    folder_ = ::mkdtemp(name.data());
    fs::create_directories(folders().own());
    start(10'000);
  }
  ~CodeCacheTest() override {
    cache_.reset();
    fs::remove_all(folder_);
  }

  NodeFolders folders() const { return NodeFolders(folder_); }
  void start(std::uint64_t most_bytes) {
    cache_ = std::make_unique<CodeCache>(folders(), most_bytes, null_logger());
    cache_->connected(kWindow);
  }
  /// Until it has come, or will not.
  void fetch(const std::string& text, const std::string& named) {
    cache_->want("job-1", named);
    for (const Deadline deadline = Deadline::after(std::chrono::seconds(30));
         cache_->changed_fd() >= 0 && !deadline.passed();) {
      std::vector<orders::CodeRequest> requests;
      cache_->send([&](std::uint16_t type, std::span<const std::byte> payload) {
        requests.push_back(orders::code_request_from({.type = type, .payload = Bytes(payload.begin(), payload.end())}));
      });
      for (const auto& request : requests) answer(request, text);
      pollfd wait{.fd = cache_->changed_fd(), .events = POLLIN, .revents = 0};
      ::poll(&wait, 1, requests.empty() ? 1'000 : 0);
      if (cache_->look()) return;
    }
  }
  void answer(const orders::CodeRequest& request, const std::string& text) {
    asked_ += request.bytes;
    const std::string part = text.substr(std::min<std::size_t>(request.offset, text.size()), request.bytes);
    net::Message message{
        .type = message_type::kCodeBytes,
        .payload = encode(orders::CodePiece{
            .sha256 = request.sha256, .offset = request.offset, .total = text.size(), .bytes = as_bytes(part)})};
    cache_->obey(message);
  }
  void fetch(const std::string& text) { fetch(text, sha256_of(text)); }
  std::string failure(const std::string& sha256) const {
    try {
      return cache_->open(sha256) ? "it is here" : "it is still coming";
    } catch (const Error& error) {
      return error.what();
    }
  }
  fs::path file_of(const std::string& text) const { return folders().code_cache() / (sha256_of(text) + ".tar"); }

  fs::path folder_;
  std::unique_ptr<CodeCache> cache_;
  std::uint64_t asked_ = 0;
};

TEST_F(CodeCacheTest, an_archive_comes_once_and_is_there_for_the_next_attempt) {
  const std::string text(300'000, 'x');
  fetch(text);
  EXPECT_EQ(failure(sha256_of(text)), "it is here");
  const std::uint64_t asked = asked_;
  fetch(text);
  EXPECT_EQ(asked_, asked);
}

// Nothing was synced to the disk: after a crash of the machine its name may stand for anything.
TEST_F(CodeCacheTest, what_an_earlier_program_has_left_is_hashed_again_and_fetched_again_if_it_is_damaged) {
  const std::string text(100'000, 'x');
  fetch(text);
  asked_ = 0;
  start(10'000);
  fetch(text);
  EXPECT_LE(asked_, orders::kMostCodePieceBytes);  // Only how long it is.
  EXPECT_EQ(failure(sha256_of(text)), "it is here");
  start(10'000);
  std::ofstream(file_of(text), std::ios::in) << "damaged";
  fetch(text);
  EXPECT_EQ(failure(sha256_of(text)), "it is here");
  EXPECT_GE(asked_, text.size());
}

TEST_F(CodeCacheTest, the_oldest_archives_go_when_there_are_too_many_bytes_and_the_attempts_own_stays) {
  const std::vector<std::string> texts = {std::string(4'000, 'a'), std::string(4'000, 'b'), std::string(20'000, 'c')};
  fetch(texts[0]);
  fs::last_write_time(file_of(texts[0]), fs::file_time_type::clock::now() - std::chrono::hours(1));
  fetch(texts[1]);
  EXPECT_TRUE(fs::exists(file_of(texts[0])));
  fetch(texts[2]);
  EXPECT_FALSE(fs::exists(file_of(texts[0])));
  EXPECT_FALSE(fs::exists(file_of(texts[1])));
  EXPECT_TRUE(fs::exists(file_of(texts[2])));
}

TEST_F(CodeCacheTest, another_archive_than_the_one_that_was_uploaded_fails_and_is_not_kept) {
  fetch("other", std::string(64, '0'));
  EXPECT_THAT(failure(std::string(64, '0')), HasSubstr("is not what was uploaded"));
  fetch("right");
  EXPECT_EQ(failure(sha256_of("right")), "it is here");
}

TEST_F(CodeCacheTest, a_refusal_of_the_service_and_a_service_that_sends_no_code_are_failures_in_one_sentence) {
  const std::string sha256(64, 'a');
  cache_->want("job-1", sha256);
  const std::string refusal = encode(orders::CodeRefusal{sha256, "it has gone"});
  const auto bytes = as_bytes(refusal);
  net::Message message{.type = message_type::kCodeRefused, .payload = Bytes(bytes.begin(), bytes.end())};
  EXPECT_TRUE(cache_->obey(message));
  EXPECT_TRUE(cache_->look());
  EXPECT_EQ(failure(sha256), "the job's code cannot be had: it has gone");
  cache_->connected(0);
  cache_->want("job-2", sha256);
  EXPECT_TRUE(cache_->look());
  EXPECT_THAT(failure(sha256), HasSubstr("is of an earlier version and sends no code"));
}

TEST_F(CodeCacheTest, an_archive_that_cannot_be_written_is_a_failure_that_says_where) {
  fs::remove_all(folders().code_cache());
  std::ofstream(folders().code_cache()) << "a file where the folder should be";
  fetch("text");
  EXPECT_THAT(failure(sha256_of("text")), HasSubstr("cannot keep the job's code in"));
}

}  // namespace
}  // namespace gyre::jobs::node
