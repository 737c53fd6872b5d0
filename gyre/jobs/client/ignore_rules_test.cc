// Users know git's rules, and what is left out or uploaded by mistake is a job that fails or a secret that leaks: git
// itself is asked, about random patterns in random trees. The seed is printed; `./dev test --long` tries 1,000 trees.
#include "gyre/jobs/client/ignore_rules.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "gyre/base/clock.h"
#include "gyre/base/effort_test_support.h"
#include "gyre/base/random.h"
#include "gyre/jobs/client/code_archive.h"

namespace gyre::jobs::client {
namespace {

namespace fs = std::filesystem;

class Trees {
 public:
  explicit Trees(std::uint64_t seed) : random_(seed) {
    std::string name = "/tmp/gyre-ignore-XXXXXX";
    place_ = ::mkdtemp(name.data());
  }
  ~Trees() { fs::remove_all(place_); }
  Trees(const Trees&) = delete;
  Trees& operator=(const Trees&) = delete;

  fs::path folder() const { return place_ / "tree"; }

  void make() {
    fs::remove_all(folder());
    fs::create_directories(folder());
    const std::size_t folders = 1 + random_.below(6);
    std::vector<fs::path> all = {folder()};
    for (std::size_t i = 0; i < folders; ++i) {
      const fs::path made = any_of(all) / name();
      std::error_code is_file;
      if (fs::create_directory(made, is_file)) all.push_back(made);
    }
    for (std::size_t i = 0; i < 12; ++i) {
      const fs::path file = any_of(all) / name();
      if (!fs::exists(file)) std::ofstream(file) << "x";
    }
    write_rules(folder());
    for (const fs::path& each : all) {
      if (random_.below(4) == 0) write_rules(each);
    }
  }

  std::string pattern() {
    static const std::vector<std::string> kParts = {
        "a",       "b",    "ab",   "a.b",  "c",     "*",    "*",    "**",          "**/",          "/",        "/**",
        "?",       "[ab]", "[!a]", "[^b]", "[a-c]", "[-a]", "[]a]", "[[:alpha:]]", "[[:digit:]b]", "[[:no:]]", "[a",
        "\\",      "\\*",  "\\a",  " ",    "\\ ",   "#",    "!",    ".",           "a b",          "[b-a]",    "[\\]]",
        "[a\\-c]", "é",    "\r",   "-",    "[a-]",  "A"};
    std::string made = random_.below(5) == 0 ? "!" : "";
    if (random_.below(5) == 0) made += "/";
    const std::size_t parts = 1 + random_.below(4);
    for (std::size_t i = 0; i < parts; ++i) made += any_of(kParts);
    if (random_.below(5) == 0) made += "/";
    return made;
  }

 private:
  template <typename Item>
  const Item& any_of(const std::vector<Item>& items) {
    return items[random_.below(items.size())];
  }
  std::string name() {
    static const std::vector<std::string> kNames = {"a",  "b",  "ab", "a.b", "c", "abc", "a b", "b ", "#a",
                                                    "!b", "[a", "-",  "*",   "é", "a*",  "1",   "]",  "A"};
    return any_of(kNames);
  }
  void write_rules(const fs::path& where) {
    std::ofstream file(where / ".gitignore");
    const std::size_t lines = 1 + random_.below(5);
    for (std::size_t i = 0; i < lines; ++i) file << pattern() << (i + 1 < lines || random_.below(2) == 0 ? "\n" : "");
  }

  Random random_;
  fs::path place_;
};

std::string said_by(const std::string& command) {
  std::FILE* program = ::popen(command.c_str(), "r");
  std::string text;
  for (int c = std::fgetc(program); c != EOF; c = std::fgetc(program)) text += static_cast<char>(c);
  ::pclose(program);
  return text;
}

/// All files and folders but those that git ignores, and that are in a folder that it ignores.
std::set<std::string> kept_by_git(const fs::path& folder) {
  std::set<std::string> kept;
  std::ofstream list(folder.parent_path() / "list", std::ios::binary);
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    const std::string path = entry.path().lexically_relative(folder);
    kept.insert(path);
    list << path << '\0';
  }
  list.close();
  const std::string ignored = said_by(fmt::format(
      "export HOME={0} GIT_CONFIG_NOSYSTEM=1 GIT_DIR={0}/git GIT_WORK_TREE={1}; cd {1} && git init -q && git -c "
      "core.excludesFile=/dev/null check-ignore -z --stdin --no-index < {0}/list",
      folder.parent_path().string(), folder.string()));
  for (std::size_t at = 0; at < ignored.size(); at = ignored.find('\0', at) + 1) {
    kept.erase(ignored.substr(at, ignored.find('\0', at) - at));
  }
  return kept;
}

std::set<std::string> kept_by_us(const fs::path& folder) {
  const fs::path file = folder.parent_path() / "code.tar";
  std::ofstream(file, std::ios::binary) << archive_code(folder).bytes;
  const std::string names = said_by(fmt::format("tar --quoting-style=literal -tf {}", file.string()));
  std::set<std::string> kept;
  for (std::size_t at = 0; at < names.size(); at = names.find('\n', at) + 1) {
    std::string name = names.substr(at, names.find('\n', at) - at);
    if (name.ends_with('/')) name.pop_back();
    kept.insert(name);
  }
  return kept;
}

std::string rules_in(const fs::path& folder) {
  std::string text;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.path().filename() != ".gitignore") continue;
    std::ifstream file(entry.path());
    text += fmt::format("{}:\n{}\n", entry.path().string(), std::string(std::istreambuf_iterator<char>(file), {}));
  }
  return text;
}

TEST(IgnoreRules, leave_out_of_random_trees_what_git_ignores) {
  const char* given = std::getenv("GYRE_TEST_IGNORE_SEED");
  const auto seed = given != nullptr ? std::strtoull(given, nullptr, 10) : static_cast<std::uint64_t>(wall_clock_us());
  std::printf("seed %llu; again with GYRE_TEST_IGNORE_SEED\n", static_cast<unsigned long long>(seed));
  Trees trees(seed);
  const int count = is_long_test() ? 1'000 : 60;
  std::size_t files = 0;
  std::size_t kept = 0;
  for (int tree = 0; tree < count && !testing::Test::HasFailure(); ++tree) {
    trees.make();
    const std::set<std::string> by_git = kept_by_git(trees.folder());
    EXPECT_EQ(kept_by_us(trees.folder()), by_git) << "tree " << tree << " of seed " << seed << "\n"
                                                  << rules_in(trees.folder());
    kept += by_git.size();
    files += static_cast<std::size_t>(std::distance(fs::recursive_directory_iterator(trees.folder()), {}));
  }
  std::printf("%zu of %zu files and folders kept\n", kept, files);
  EXPECT_GT(kept, files / 10);  // Both kinds were there.
  EXPECT_LT(kept, files - files / 10);
}

TEST(IgnoreRules, say_nothing_of_what_no_pattern_matches) {
  const IgnoreRules rules("# comment\n\n*.log\n!keep.log\nbuild/\n");
  EXPECT_EQ(rules.verdict("a/b.log", false), true);
  EXPECT_EQ(rules.verdict("keep.log", false), false);
  EXPECT_EQ(rules.verdict("build", false), std::nullopt);
  EXPECT_EQ(rules.verdict("build", true), true);
  EXPECT_EQ(rules.verdict("# comment", false), std::nullopt);
}

}  // namespace
}  // namespace gyre::jobs::client
