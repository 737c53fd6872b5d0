// The path of a request becomes a path of the catalog and of files: it must not be able to say anything but names.
#include "gyre/net/http/target.h"

#include <gtest/gtest.h>

#include "gyre/net/http/error.h"

namespace gyre::net::http {
namespace {

using Query = std::vector<std::pair<std::string, std::string>>;

int status_of(std::string_view text) {
  try {
    parse_target(text);
    return 200;
  } catch (const HttpError& error) {
    return error.status();
  }
}

TEST(Target, is_decoded_once) {
  const Target target = parse_target("/jobs/a%20b/%C3%A9%25?x=1%262&name=a+b%2B");
  EXPECT_EQ(target.segments, (std::vector<std::string>{"jobs", "a b", "\xc3\xa9%"}));
  EXPECT_EQ(target.query, (Query{{"x", "1&2"}, {"name", "a b+"}}));
}

TEST(Target, the_root_has_no_segments) {
  EXPECT_TRUE(parse_target("/").segments.empty());
  EXPECT_EQ(parse_target("/?a=b").query, (Query{{"a", "b"}}));
  EXPECT_TRUE(parse_target("/a?").query.empty());
}

TEST(Target, cannot_express_a_path_that_leads_elsewhere) {
  for (const char* text :
       {"/..",  "/a/../b",       "/a/.",  "/./a", "/%2e%2e/a", "/%2E",   "/a%2fb", "/a%5cb", "/a/%2e%2e%2fetc",
        "//",   "//a",           "/a//b", "/a/",  "/%00",      "/a%0ab", "/a%7f",  "a",      "",
        "?a=b", "http://host/a", "*",     "/a\\b"}) {
    EXPECT_EQ(status_of(text), 400) << text;
  }
}

TEST(Target, incomplete_or_ambiguous_encodings_are_refused) {
  for (const char* text : {"/%", "/%4", "/%g0", "/%4g", "/%c0%af", "/%ff", "/%ed%a0%80", "/\xc3\xa9", "/a b", "/a\"",
                           "/a#b", "/a?b", "/a?b=1&b=2", "/a?=1", "/a?b=1&", "/a?b=%0d%0a", "/a?b=\x7f", "/a?b=%"}) {
    EXPECT_EQ(status_of(text), 400) << text;
  }
}

TEST(Target, has_limits) {
  EXPECT_EQ(status_of("/" + std::string(kMostTargetBytes - 1, 'a')), 200);
  EXPECT_EQ(status_of("/" + std::string(kMostTargetBytes, 'a')), 414);
  std::string deep;
  for (std::size_t i = 0; i < kMostSegments; ++i) deep += "/a";
  EXPECT_EQ(status_of(deep), 200);
  EXPECT_EQ(status_of(deep + "/a"), 400);
  std::string query = "/a?p=1";
  for (std::size_t i = 1; i < kMostQueryParameters; ++i) query += "&p" + std::to_string(i) + "=1";
  EXPECT_EQ(status_of(query), 200);
  EXPECT_EQ(status_of(query + "&q=1"), 400);
}

TEST(Target, what_is_encoded_decodes_to_the_same) {
  const Target target{{"a b", "\xc3\xa9", "100%", "~._-", "x+y"}, {{"na&me", "va=lue +"}, {"empty", ""}}};
  EXPECT_EQ(parse_target(to_string(target)), target);
}

}  // namespace
}  // namespace gyre::net::http
