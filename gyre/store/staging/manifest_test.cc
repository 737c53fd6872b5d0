// Which objects become which files, on which node.

#include "gyre/store/staging/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/base/random.h"
#include "gyre/store/staging/patterns.h"
#include "gyre/store/staging/shards.h"

namespace gyre::store {
namespace {

using ::testing::HasSubstr;

TEST(Manifest, LeavesOutWhatAStagingKeepsInItsFolder) {
  const Manifest manifest = make_manifest(
      {{.source = "there", .objects = {{.name = ".gyre-stage/log"}, {.name = "a/.gyre-stage/log"}, {.name = "b"}}}},
      Inflation::kNone);
  ASSERT_EQ(manifest.entries.size(), 1U);
  EXPECT_EQ(manifest.entries[0].target, "b");
}

TEST(Manifest, RefusesNamesThatLeadAwayOrClash) {
  const auto said = [](const std::vector<std::string>& names, Inflation inflation = Inflation::kNone) -> std::string {
    std::vector<Object> objects;
    for (const std::string& name : names) objects.push_back({.name = name});
    try {
      make_manifest({{.source = "there", .objects = objects}}, inflation);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(said({"a", "a-b", "a.b/c", "b/c"}), "");
  for (const char* name : {"../a", "a/../b", "/a", "a//b", "a/", ".", "a/./b", "a\nb"}) {
    EXPECT_THAT(said({name}), HasSubstr("holds an object that no file can be named after")) << name;
  }
  EXPECT_THAT(said({std::string(256, 'x')}), HasSubstr("longer than 255 bytes"));
  EXPECT_THAT(said({"a", "a-b", "a/b"}), HasSubstr("would be a file where a/b of there needs a folder"));
  EXPECT_THAT(said({"a.tfrecord", "a.tfrecord.gz"}, Inflation::kBySuffix),
              HasSubstr("would both become the file a.tfrecord"));
  EXPECT_THAT(said({".gz"}, Inflation::kBySuffix), HasSubstr("a part of it is empty"));
}

/// The textbook's definition.
bool model_matches(std::string_view pattern, std::string_view name) {
  if (pattern.empty()) return name.empty();
  if (pattern[0] == '*')
    return model_matches(pattern.substr(1), name) || (!name.empty() && model_matches(pattern, name.substr(1)));
  return !name.empty() && (pattern[0] == '?' || pattern[0] == name[0]) &&
         model_matches(pattern.substr(1), name.substr(1));
}

TEST(Patterns, MatchAsTheirDefinitionSays) {
  Random random(4);
  const auto draw = [&](std::string_view letters, std::size_t most) {
    std::string text;
    for (std::size_t left = random.below(most); left > 0; --left) text += letters[random.below(letters.size())];
    return text;
  };
  int matched = 0;
  for (int i = 0; i < 20'000; ++i) {
    const std::string pattern = draw("ab*?", 7);
    const std::string name = draw("ab", 8);
    EXPECT_EQ(matches(pattern, name), model_matches(pattern, name)) << pattern << " " << name;
    matched += matches(pattern, name) ? 1 : 0;
  }
  EXPECT_GT(matched, 1'000);
}

TEST(Shards, GiveEachObjectToOneNodeForEveryNumberOfNodes) {
  Random random(5);
  for (int trial = 0; trial < 60; ++trial) {
    Manifest manifest{.sources = {"there"}, .entries = {}};
    const std::size_t count = random.below(40);
    for (std::size_t i = 0; i < count; ++i) {
      const std::string name =
          random.below(4) == 0 ? "none" + std::string(i, 'x') : "f_" + std::to_string(i) + ".tfrecord.gz";
      manifest.entries.push_back({.object = {.name = name, .size_bytes = random.below(1'000)}, .target = name});
    }
    const int nodes = 1 + static_cast<int>(random.below(9));
    for (const ShardRule rule : {ShardRule::kSize, ShardRule::kSuffix, ShardRule::kRange}) {
      std::size_t given = 0;
      std::set<std::string> names;
      std::uint64_t most = 0;
      std::uint64_t least = ~std::uint64_t{0};
      for (int node = 0; node < nodes; ++node) {
        const Manifest part = part_of_node(manifest, node, nodes, rule);
        given += part.entries.size();
        for (const ManifestEntry& entry : part.entries) names.insert(entry.target);
        most = std::max(most, part.stored_bytes());
        least = std::min(least, part.stored_bytes());
      }
      EXPECT_EQ(given, count);
      EXPECT_EQ(names.size(), count);
      // Longest first: no node has more than another by more than one object.
      if (rule == ShardRule::kSize) {
        EXPECT_LE(most - least, 1'000U + count);
      }
    }
  }
}

}  // namespace
}  // namespace gyre::store
