// A log is sent in pieces that end anywhere; a terminal must be given whole characters.
#include "gyre/net/http/utf8.h"

#include <gtest/gtest.h>

#include <string>

namespace gyre::net::http {
namespace {

TEST(Utf8, only_shortest_forms_of_real_characters_are_valid) {
  for (const char* text :
       {"", "a", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xef\xbf\xbf", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_TRUE(is_utf8(text)) << text;
  }
  for (const char* text : {"\x80", "\xc0\xaf", "\xc3", "\xe2\x82", "\xe0\x80\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80",
                           "\xf5\x80\x80\x80", "\xff", "\xc3\x28"}) {
    EXPECT_FALSE(is_utf8(text)) << text;
  }
}

TEST(Utf8, an_incomplete_character_at_the_end_waits_for_its_rest) {
  const std::string euro = "\xe2\x82\xac";
  const std::string smile = "\xf0\x9f\x98\x80";
  EXPECT_EQ(whole_characters("ab" + euro), 5U);
  EXPECT_EQ(whole_characters("ab" + euro.substr(0, 2)), 2U);
  EXPECT_EQ(whole_characters("ab" + euro.substr(0, 1)), 2U);
  for (std::size_t count = 1; count < smile.size(); ++count) EXPECT_EQ(whole_characters(smile.substr(0, count)), 0U);
  EXPECT_EQ(whole_characters(smile + smile), 8U);
}

TEST(Utf8, bytes_that_never_become_a_character_are_not_held_back) {
  EXPECT_EQ(whole_characters("\xff"), 1U);
  EXPECT_EQ(whole_characters("a\x80\x80"), 3U);
  EXPECT_EQ(whole_characters("\xc0"), 1U);
  EXPECT_EQ(whole_characters("\xe2\x28"), 2U);
  EXPECT_EQ(whole_characters(""), 0U);
}

}  // namespace
}  // namespace gyre::net::http
