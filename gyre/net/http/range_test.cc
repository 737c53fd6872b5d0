// Ranges come from clients: each form must give exactly the bytes it names, or one clear refusal.
#include "gyre/net/http/range.h"

#include <gtest/gtest.h>

#include <limits>

#include "gyre/net/http/error.h"

namespace gyre::net::http {
namespace {

using Ranges = std::vector<ByteRange>;

int status_of(std::string_view header, std::uint64_t size) {
  try {
    parse_ranges(header, size);
    return 206;
  } catch (const HttpError& error) {
    EXPECT_EQ(*error.headers.find("Content-Range"), "bytes */" + std::to_string(size));
    return error.status();
  }
}

TEST(Range, each_form_names_its_bytes) {
  EXPECT_EQ(parse_ranges("bytes=0-0", 10), (Ranges{{0, 0}}));
  EXPECT_EQ(parse_ranges("bytes=2-5", 10), (Ranges{{2, 5}}));
  EXPECT_EQ(parse_ranges("bytes=7-", 10), (Ranges{{7, 9}}));
  EXPECT_EQ(parse_ranges("bytes=-3", 10), (Ranges{{7, 9}}));
  EXPECT_EQ(parse_ranges("Bytes = 0-1 , 4-5,-2", 10), (Ranges{{0, 1}, {4, 5}, {8, 9}}));
}

TEST(Range, is_cut_to_what_there_is) {
  EXPECT_EQ(parse_ranges("bytes=5-100", 10), (Ranges{{5, 9}}));
  EXPECT_EQ(parse_ranges("bytes=-100", 10), (Ranges{{0, 9}}));
  EXPECT_EQ(parse_ranges("bytes=0-1,50-60", 10), (Ranges{{0, 1}}));
  const std::uint64_t huge = std::numeric_limits<std::uint64_t>::max();
  EXPECT_EQ(parse_ranges("bytes=0-18446744073709551615", huge), (Ranges{{0, huge - 1}}));
}

TEST(Range, in_another_unit_asks_for_the_whole) {
  EXPECT_TRUE(parse_ranges("lines=1-2", 10).empty());
  EXPECT_TRUE(parse_ranges("bytes", 10).empty());
}

TEST(Range, what_cannot_be_served_is_refused) {
  for (const char* header : {"bytes=10-", "bytes=10-20", "bytes=-0", "bytes=", "bytes=-", "bytes=5", "bytes=5-3",
                             "bytes=a-b", "bytes=1-2,", "bytes=+1-2", "bytes=1--2", "bytes=0x1-2", "bytes=1 -2",
                             "bytes=18446744073709551616-", "bytes=0-3,2-5", "bytes=0-,-1"}) {
    EXPECT_EQ(status_of(header, 10), 416) << header;
  }
  EXPECT_EQ(status_of("bytes=0-", 0), 416);
  EXPECT_EQ(status_of("bytes=-1", 0), 416);
}

TEST(Range, there_are_only_so_many) {
  std::string header = "bytes=0-0";
  for (std::size_t i = 1; i < kMostRanges; ++i) header += "," + std::to_string(2 * i) + "-" + std::to_string(2 * i);
  EXPECT_EQ(parse_ranges(header, 100).size(), kMostRanges);
  EXPECT_EQ(status_of(header + ",90-91", 100), 416);
}

}  // namespace
}  // namespace gyre::net::http
