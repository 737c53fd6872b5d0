// Files come from anybody: none may take more than a moment or a few dozen MB, whatever it holds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "gyre/base/bytes.h"
#include "gyre/jobs/spec/parse.h"
#include "gyre/jobs/spec/parse_test_support.h"

namespace gyre::jobs::spec {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string only_problem(const std::string& text) {
  const auto parsed = parse_job(text);
  EXPECT_FALSE(parsed.spec.has_value());
  return parsed.problems.size() == 1 ? describe(parsed.problems.front())
                                     : std::to_string(parsed.problems.size()) + " problems";
}

std::string repeated(std::string_view text, std::size_t times) {
  std::string result;
  for (std::size_t i = 0; i < times; ++i) result += text;
  return result;
}

TEST(hostile, aliases_that_multiply_are_refused_before_they_grow) {
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int level = 1; level < 20; ++level) {
    const std::string before = "*a" + std::to_string(level - 1);
    bomb += "a" + std::to_string(level) + ": &a" + std::to_string(level) + " [" + repeated(before + " , ", 9) + before +
            " ]\n";
  }
  EXPECT_THAT(only_problem(bomb), HasSubstr("the file has more than 100000 values"));
}

TEST(hostile, aliases_of_a_long_text_are_refused) {
  EXPECT_THAT(only_problem("a: &a " + std::string(1 << 20, 'x') + "\nb: [" + repeated("*a , ", 1000) + "1]\n"),
              HasSubstr("the file's texts are longer than"));
}

TEST(hostile, deep_nesting_is_refused) {
  EXPECT_THAT(only_problem(std::string(1'000'000, '[')), HasSubstr("the file is nested more than 32 levels deep"));
  EXPECT_THAT(only_problem(repeated("{\"a\":", 100'000)), HasSubstr("the file is nested more than 32 levels deep"));
  EXPECT_THAT(only_problem("a: " + std::string(40, '[') + std::string(40, ']')),
              HasSubstr("the file is nested more than 32 levels deep"));
  EXPECT_THAT(only_problem(repeated("- ", 100'000)), HasSubstr("the file is nested more than 32 levels deep"));
}

TEST(hostile, large_files_are_refused_unread) {
  EXPECT_EQ(only_problem(std::string(kMostFileBytes + 1, '{')), "the file has 4194305 bytes; 4194304 are the limit");
  EXPECT_THAT(only_problem("[" + repeated("1,", 200'000) + "1]"), HasSubstr("the file has more than 100000 values"));
}

TEST(hostile, long_lists_are_refused) {
  const std::string variables =
      repeated(R"({"name": "A", "value": ""},)", kMostEntries) + R"({"name": "A", "value": ""})";
  EXPECT_EQ(only_problem(job_file("\"environmentVariables\": [" + variables + "]")),
            "1: /properties/environmentVariables has 1001 entries; 1000 are the limit");
}

TEST(hostile, a_job_that_could_not_be_read_again_is_refused) {
  std::string file =
      "properties:\n  nodeCount: 1\n  stdOutErrPathPrefix: /l\n  customToolkitSettings:\n    commandLine: &x /" +
      std::string(120'000, 'x') + "\n  inputDirectories:\n";
  for (int i = 0; i < 40; ++i) file += "  - {id: D" + std::to_string(i) + ", path: *x }\n";
  EXPECT_THAT(only_problem(file), HasSubstr("bytes of JSON; 4194304 are the limit"));
}

TEST(hostile, bytes_that_are_no_text_are_refused) {
  EXPECT_EQ(only_problem("{\n\"a\": \"\xff\"}"), "2: the file is not UTF-8 text");
  EXPECT_EQ(only_problem("\xff\xfe{\0}\0"), "1: the file is not UTF-8 text");
  EXPECT_EQ(only_problem(std::string("a: 1\n\0", 6)), "2: the file is not text: it has a NUL character");
  EXPECT_EQ(only_problem("a: \"\xed\xa0\x80\""), "1: the file is not UTF-8 text") << "half of a surrogate pair";
  EXPECT_EQ(only_problem("a: \"\xc0\x80\""), "1: the file is not UTF-8 text") << "an overlong NUL";
  EXPECT_TRUE(parse_job("\xEF\xBB\xBF" + job_file("")).spec.has_value()) << "a byte order mark";
}

TEST(hostile, an_escaped_nul_does_not_pass) {
  EXPECT_THAT(problems_of(parse_job(job_file(R"("jobPreparation": {"commandLine": "a\u0000b"})"))),
              ElementsAre("1: /properties/jobPreparation/commandLine has a NUL character"));
  EXPECT_EQ(only_problem("a: \"x\\0y\"\n"), "1: a text has a NUL character");
}

TEST(hostile, numbers_that_overflow_or_are_none_are_refused) {
  EXPECT_THAT(only_problem(R"({"properties": {"nodeCount": 1e999}})"), HasSubstr("the file is not valid JSON"));
  EXPECT_THAT(only_problem(R"({"properties": {"nodeCount": NaN}})"), HasSubstr("the file is not valid JSON"));
  for (const char* number : {".nan", ".inf", "1e999", "0x10", "1_000", "-.inf", "1e15"}) {
    const auto parsed = parse_job("properties: {nodeCount: " + std::string(number) +
                                  ", stdOutErrPathPrefix: /l, customToolkitSettings: {commandLine: x}}");
    ASSERT_EQ(parsed.problems.size(), 1U) << number;
    EXPECT_THAT(parsed.problems.front().message, HasSubstr("must be a whole number")) << number;
  }
}

TEST(hostile, thousands_of_unknown_properties_hide_no_error_and_cost_little) {
  std::string properties = "\"customToolkitSetings\": {}";
  for (int i = 0; i < 40'000; ++i) properties += ", \"unknown" + std::to_string(i) + "\": 1";
  const auto start = std::chrono::steady_clock::now();
  const auto parsed = parse_job("{\"properties\": {" + properties + "}}");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  EXPECT_FALSE(parsed.spec.has_value());
  EXPECT_EQ(parsed.problems.size(), kMostProblems + 3);
  EXPECT_THAT(problems_of(parsed), testing::Contains("1: /properties/nodeCount is missing"));
}

TEST(hostile, long_names_are_cut_in_messages) {
  const auto parsed = parse_job(job_file("\"" + repeated("ü", 10'000) + "\\n\": 1"));
  ASSERT_EQ(parsed.problems.size(), 1U);
  EXPECT_LT(describe(parsed.problems.front()).size(), 200U);
}

}  // namespace
}  // namespace gyre::jobs::spec
