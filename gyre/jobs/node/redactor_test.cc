// A secret that a program prints must not reach the disk, however the pipe cuts it into pieces.
#include "gyre/jobs/node/redactor.h"

#include <gtest/gtest.h>

#include "gyre/base/random.h"

namespace gyre::jobs::node {
namespace {

std::string all_of(Redactor redactor, const std::string& text) {
  std::string result = redactor.pass(text);
  return result + redactor.finish();
}

TEST(Redactor, a_secret_is_hidden_wherever_it_stands) {
  EXPECT_EQ(all_of(Redactor({"hunter2"}), "hunter2 and hunter2hunter2, not hunter1"), "*** and ******, not hunter1");
}

TEST(Redactor, the_longer_of_two_secrets_wins) {
  EXPECT_EQ(all_of(Redactor({"pass", "password"}), "password pass passwor"), "*** *** ***wor");
}

TEST(Redactor, text_that_cannot_become_a_secret_is_passed_on_at_once) {
  Redactor redactor({"secret"});
  EXPECT_EQ(redactor.pass("hello s"), "hello ");
  EXPECT_EQ(redactor.pass("e"), "");
  EXPECT_EQ(redactor.pass("t\n"), "set\n");
}

// What a node program writes again after a restart must continue the file that the one before it has begun.
TEST(Redactor, any_cut_of_a_stream_gives_the_same_result) {
  const std::uint64_t seed = 20'240'607;
  SCOPED_TRACE(seed);
  Random random(seed);
  const std::vector<std::string> secrets = {"abab", "ba", "aabb"};
  for (int round = 0; round < 200; ++round) {
    std::string text;
    for (int i = 0; i < 40; ++i) text += static_cast<char>('a' + random.below(3));
    const std::string whole = all_of(Redactor(secrets), text);
    Redactor redactor(secrets);
    std::string pieces;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t count = 1 + random.below(5);
      pieces += redactor.pass(std::string_view(text).substr(at, count));
      at += count;
    }
    EXPECT_EQ(pieces + redactor.finish(), whole) << text;
  }
}

}  // namespace
}  // namespace gyre::jobs::node
