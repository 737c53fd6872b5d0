// Files give limits of time in .NET's form or in ISO 8601's; a limit read wrongly ends a job days early or late.
#include "gyre/jobs/spec/duration.h"

#include <gtest/gtest.h>

#include <string>

namespace gyre::jobs::spec {
namespace {

using std::chrono::days;
using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;

TEST(duration, dot_net_time_spans_are_read) {
  EXPECT_EQ(parse_duration("7.00:00:00"), days(7));
  EXPECT_EQ(parse_duration("1.02:03:04"), days(1) + hours(2) + minutes(3) + seconds(4));
  EXPECT_EQ(parse_duration("01:30:00"), minutes(90));
  EXPECT_EQ(parse_duration("1:30"), minutes(90));
  EXPECT_EQ(parse_duration("00:00:10.0000001"), seconds(11));
  EXPECT_EQ(parse_duration("00:00:10.000"), seconds(10));
}

TEST(duration, iso_8601_is_read) {
  EXPECT_EQ(parse_duration("P7D"), days(7));
  EXPECT_EQ(parse_duration("P1DT12H"), hours(36));
  EXPECT_EQ(parse_duration("PT1H30M5S"), minutes(90) + seconds(5));
  EXPECT_EQ(parse_duration("PT90M"), minutes(90));
  EXPECT_EQ(parse_duration("P2W"), days(14));
  EXPECT_EQ(parse_duration("PT1.5S"), seconds(2));
  EXPECT_EQ(parse_duration("PT0,0S"), seconds(0));
}

TEST(duration, other_texts_are_none) {
  for (const char* text : {"",      "P",     "PT",         "P1DT",        "7",       "7 days",   "P1Y",
                           "P1M",   "PT1D",  "P1H",        "PT1M1H",      "P1.5D",   "-P1D",     "P-1D",
                           "1:60",  "24:00", "1.24:00:00", "1:2:3:4",     "1:00:60", "1:00:00.", "PT1.S",
                           "p1d",   " P1D",  "P1D ",       "P999999999D", "P1D1D",   "1.:00",    "99999999999:00",
                           "+1:00", "PT+1S", "1:-1"}) {
    EXPECT_EQ(parse_duration(text), std::nullopt) << text;
  }
}

TEST(duration, what_is_written_is_read_again) {
  EXPECT_EQ(iso_8601_duration(days(7)), "P7D");
  EXPECT_EQ(iso_8601_duration(hours(36) + seconds(5)), "P1DT12H5S");
  EXPECT_EQ(iso_8601_duration(minutes(90)), "PT1H30M");
  EXPECT_EQ(iso_8601_duration(seconds(0)), "PT0S");
  for (int count = 0; count < 1'000'000; count += 997)
    ASSERT_EQ(parse_duration(iso_8601_duration(seconds(count))), seconds(count));
}

}  // namespace
}  // namespace gyre::jobs::spec
