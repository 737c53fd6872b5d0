// What is held out must be the same on all ranks, after a resume and in the next run, and must never be trained: the
// split is a pure function of the seed and the names.
#include "gyre/data/stratified_split.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <string>

#include "gyre/base/error.h"
#include "gyre/base/random.h"
#include "gyre/data/open_samples.h"
#include "gyre/data/record_files_test_support.h"

namespace gyre::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Files {
  std::vector<std::uint32_t> labels;
  std::vector<std::string> names;

  void add(std::uint32_t label, int count) {
    for (int i = 0; i < count; ++i) {
      labels.push_back(label);
      names.push_back(std::to_string(label) + "/" + std::to_string(i) + ".jpg");
    }
  }
  StratifiedSplit split(double share, std::uint64_t seed) const {
    return stratified_split(
        labels, [&](std::uint64_t sample) -> std::string_view { return names[static_cast<std::size_t>(sample)]; },
        share, seed);
  }
  std::set<std::string> validation_names(double share, std::uint64_t seed) const {
    std::set<std::string> held;
    for (const std::uint64_t sample : split(share, seed).validation) {
      held.insert(names[static_cast<std::size_t>(sample)]);
    }
    return held;
  }
};

TEST(StratifiedSplit, each_class_gives_its_share_and_keeps_at_least_one) {
  Files files;
  files.add(0, 100);
  files.add(1, 14);
  files.add(2, 2);
  files.add(3, 1);
  const StratifiedSplit split = files.split(0.1, 1);
  std::vector<int> held(4);
  for (const std::uint64_t sample : split.validation) ++held[files.labels[static_cast<std::size_t>(sample)]];
  EXPECT_THAT(held, ElementsAre(10, 1, 1, 0));
  std::fill(held.begin(), held.end(), 0);
  for (const std::uint64_t sample : files.split(0.99, 1).validation) {
    ++held[files.labels[static_cast<std::size_t>(sample)]];
  }
  EXPECT_THAT(held, ElementsAre(99, 13, 1, 0));
}

TEST(StratifiedSplit, the_parts_are_all_samples_and_share_none) {
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  Random random(seed, 0);
  for (int round = 0; round < 50; ++round) {
    Files files;
    const int classes = 1 + static_cast<int>(random.below(6));
    for (int label = 0; label < classes; ++label) {
      files.add(static_cast<std::uint32_t>(label), 1 + static_cast<int>(random.below(40)));
    }
    const StratifiedSplit split = files.split(static_cast<double>(random.uniform()), random.below(1000));
    EXPECT_TRUE(std::ranges::is_sorted(split.training));
    EXPECT_TRUE(std::ranges::is_sorted(split.validation));
    std::vector<std::uint64_t> all = split.training;
    all.insert(all.end(), split.validation.begin(), split.validation.end());
    std::ranges::sort(all);
    std::vector<std::uint64_t> expected(files.labels.size());
    std::iota(expected.begin(), expected.end(), std::uint64_t{0});
    EXPECT_EQ(all, expected);
  }
}

// A split that changes with a version of Gyre would validate on what an earlier run has trained.
TEST(StratifiedSplit, it_never_changes) {
  Files files;
  files.add(0, 20);
  files.add(1, 10);
  EXPECT_THAT(files.split(0.2, 7).validation, ElementsAre(5U, 9U, 14U, 17U, 21U, 27U));
}

TEST(StratifiedSplit, it_depends_on_the_seed_and_the_names_alone) {
  Files files;
  files.add(0, 200);
  EXPECT_NE(files.validation_names(0.1, 1), files.validation_names(0.1, 2));
  Files shuffled = files;
  std::ranges::reverse(shuffled.names);
  EXPECT_EQ(shuffled.validation_names(0.1, 1), files.validation_names(0.1, 1));
  // With a tenth more images most of those held out before still are.
  Files more;
  more.add(0, 220);
  const auto before = files.validation_names(0.1, 1);
  const auto after = more.validation_names(0.1, 1);
  const auto kept = std::ranges::count_if(before, [&](const std::string& name) { return after.contains(name); });
  EXPECT_GE(kept, 14);
}

TEST(StratifiedSplit, sets_without_labels_by_name_are_refused) {
  testing::RecordFiles files;
  files.add(3);
  const auto records = open_samples(files.names(), open_local_file, {});
  try {
    split_set(records, 0.1, 1);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("only a folder with a folder for each class can be split"));
  }
}

}  // namespace
}  // namespace gyre::data
