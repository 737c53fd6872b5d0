// Patterns decide which results outlive a job: one that matches less than its user thinks loses them.
#include "gyre/jobs/spec/file_pattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "gyre/base/clock.h"
#include "gyre/base/error.h"

namespace gyre::jobs::spec {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> matching(const std::string& pattern, const std::vector<std::string>& paths) {
  const FilePattern rule(pattern);
  std::vector<std::string> found;
  for (const std::string& path : paths) {
    if (rule.matches(path)) found.push_back(path);
  }
  return found;
}

TEST(FilePattern, a_name_is_looked_for_at_any_depth) {
  const std::vector<std::string> paths = {"a.pt", "out/b.pt", "out/deep/c.pt", "a.ptx", "pt"};
  EXPECT_THAT(matching("*.pt", paths), ElementsAre("a.pt", "out/b.pt", "out/deep/c.pt"));
  EXPECT_THAT(matching("?.pt", paths), ElementsAre("a.pt", "out/b.pt", "out/deep/c.pt"));
  EXPECT_THAT(matching("./*.pt", paths), ElementsAre("a.pt"));
}

TEST(FilePattern, a_path_begins_at_the_folder) {
  const std::vector<std::string> paths = {"out/a.csv", "x/out/a.csv", "out/b/c/d.csv", "out/b/d.txt"};
  EXPECT_THAT(matching("out/*.csv", paths), ElementsAre("out/a.csv"));
  EXPECT_THAT(matching("out/**/*.csv", paths), ElementsAre("out/a.csv", "out/b/c/d.csv"));
  EXPECT_THAT(matching("**/out/*.csv", paths), ElementsAre("out/a.csv", "x/out/a.csv"));
  EXPECT_THAT(matching("out/**/c/**/*.csv", paths), ElementsAre("out/b/c/d.csv"));
  EXPECT_THAT(matching("out//./b/*", paths), ElementsAre("out/b/c/d.csv", "out/b/d.txt"));
}

TEST(FilePattern, a_folder_stands_for_all_below_it) {
  const std::vector<std::string> paths = {"out/a", "out/b/c", "x/out/d", "outer/e", "f/out"};
  EXPECT_THAT(matching("out", paths), ElementsAre("out/a", "out/b/c", "x/out/d", "f/out"));
  EXPECT_THAT(matching("out/", paths), ElementsAre("out/a", "out/b/c", "x/out/d"));
  EXPECT_THAT(matching("./out", paths), ElementsAre("out/a", "out/b/c"));
  EXPECT_THAT(matching("out/**", paths), ElementsAre("out/a", "out/b/c"));
  EXPECT_THAT(matching("f/out/**", paths), IsEmpty());
  EXPECT_THAT(matching(".", paths), testing::SizeIs(5));
  EXPECT_THAT(matching("./", paths), testing::SizeIs(5));
  EXPECT_THAT(matching("**", paths), testing::SizeIs(5));
  EXPECT_THAT(matching("*", paths), testing::SizeIs(5));
}

TEST(FilePattern, sets_escapes_and_characters_of_several_bytes_are_as_in_a_shell) {
  const std::vector<std::string> paths = {"a1", "b2", "c-", "[x]", "*", "\xc3\xa9t", "\xff", "]"};
  EXPECT_THAT(matching("[ab][0-9]", paths), ElementsAre("a1", "b2"));
  EXPECT_THAT(matching("[!a-b]?", paths), ElementsAre("c-", "\xc3\xa9t"));
  EXPECT_THAT(matching("[^a-b]?", paths), ElementsAre("c-", "\xc3\xa9t"));
  EXPECT_THAT(matching("c[a-]", paths), ElementsAre("c-"));
  EXPECT_THAT(matching("\\[x\\]", paths), ElementsAre("[x]"));
  EXPECT_THAT(matching("[x", paths), IsEmpty());
  EXPECT_THAT(matching("[[]x]", paths), ElementsAre("[x]"));
  EXPECT_THAT(matching("\\*", paths), ElementsAre("*"));
  EXPECT_THAT(matching("?t", paths), ElementsAre("\xc3\xa9t"));
  EXPECT_THAT(matching("[\xc3\xa8-\xc3\xaa]t", paths), ElementsAre("\xc3\xa9t"));
  EXPECT_THAT(matching("?", paths), ElementsAre("*", "\xff", "]"));
  EXPECT_THAT(matching("[]]", paths), ElementsAre("]"));
}

TEST(FilePattern, what_could_mean_anything_outside_is_refused) {
  const auto refusal = [](const std::string& text) -> std::string {
    try {
      const FilePattern accepted(text);
      return "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return error.what();
    }
  };
  EXPECT_EQ(refusal("/etc/*"), "'/etc/*' is absolute; give a path relative to the working folder");
  EXPECT_THAT(refusal("../x"), HasSubstr("'../x' contains '..'"));
  EXPECT_THAT(refusal("a/../b"), HasSubstr("contains '..'"));
  EXPECT_THAT(refusal("a/.."), HasSubstr("contains '..'"));
  EXPECT_THAT(refusal(""), HasSubstr("names nothing"));
  EXPECT_THAT(refusal("!x"), HasSubstr("begins with '!'"));
  EXPECT_THAT(refusal("a\nb"), HasSubstr("control characters"));
  EXPECT_THAT(refusal(std::string(2000, 'a')), HasSubstr("more than 1024 bytes"));
  EXPECT_EQ(refusal("..a/b..c/..."), "accepted");
}

// Both may come from somebody who wants to keep a node busy.
TEST(FilePattern, no_pattern_takes_long) {
  const auto begin = SteadyClock::now();
  std::string stars;
  for (int i = 0; i < 120; ++i) stars += "*a";
  EXPECT_THAT(matching(stars + "b", {std::string(255, 'a')}), IsEmpty());
  std::string folders;
  std::string path;
  for (int i = 0; i < 100; ++i) {
    folders += "**/a/";
    path += "a/a/";
  }
  EXPECT_THAT(matching(folders + "b", {path + "c"}), IsEmpty());
  EXPECT_LT(SteadyClock::now() - begin, std::chrono::seconds(5));
}

}  // namespace
}  // namespace gyre::jobs::spec
