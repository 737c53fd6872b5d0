// A reader that comes back goes by the numbers: a record that changes its number, or its bytes, is a wrong log.
#include "gyre/launch/internal/record_log.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace gyre::launch {
namespace {

using Json = nlohmann::json;

TEST(record_log, numbers_stay_when_the_oldest_records_go) {
  RecordLog log(200);
  EXPECT_EQ(log.first(), 1U);
  EXPECT_EQ(log.last(), 0U);
  for (int i = 1; i <= 100; ++i) log.add({{"value", i}});
  EXPECT_EQ(log.last(), 100U);
  EXPECT_GT(log.first(), 90U);
  for (std::uint64_t sequence = log.first(); sequence <= log.last(); ++sequence) {
    const Json record = Json::parse(log.line(sequence));
    EXPECT_EQ(record["sequence"], sequence);
    EXPECT_EQ(record["value"], sequence);
  }
  log.add({{"value", std::string(1000, 'x')}});
  EXPECT_EQ(log.first(), 101U);  // The newest one is kept whatever its length.
}

TEST(record_log, bytes_that_are_no_text_travel_as_base64) {
  const auto put = [](std::string_view bytes) {
    Json record;
    put_bytes(record, bytes);
    return record;
  };
  EXPECT_EQ(put("aä€😀\n"), (Json{{"text", "aä€😀\n"}}));
  EXPECT_EQ(put("\xff"), (Json{{"base64", "/w=="}}));
  EXPECT_EQ(put("ab\xff"), (Json{{"base64", "YWL/"}}));
  EXPECT_EQ(put("abc\xff"), (Json{{"base64", "YWJj/w=="}}));
  EXPECT_EQ(put("ab\xc3"), (Json{{"base64", "YWLD"}}));  // Half a character.
  // Overlong, a surrogate, beyond the last character, a lone second byte.
  for (const char* bad : {"\xc0\xaf", "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\x80", "\xf5\x80\x80\x80"}) {
    EXPECT_TRUE(put(bad).contains("base64"));
    EXPECT_NO_THROW(static_cast<void>(put(bad).dump()));
  }
}

}  // namespace
}  // namespace gyre::launch
