// A part of a set must read as the same samples of the whole, in memory and time of its own size; --n-train and
// --validation-share rest on it.
#include "gyre/data/sample_subset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>

#include "gyre/data/open_samples.h"
#include "gyre/data/record_files_test_support.h"

namespace gyre::data {
namespace {

using ::testing::ElementsAre;
using testing::RecordFiles;

std::vector<std::int64_t> labels_of(const SampleSet& set) {
  std::vector<std::int64_t> labels;
  StageTimes times;
  const auto reader = set.make_reader(nullptr);
  reader->expect_neighbours([] { return std::vector<std::uint64_t>{0}; });
  for (std::uint64_t i = 0; i < set.count(); ++i) {
    std::array<std::int64_t, 1> label{};
    EXPECT_TRUE(reader->read_sample(i, times).find("label")->copy_ints(label));
    labels.push_back(label[0]);
  }
  return labels;
}

TEST(SampleSubset, its_samples_are_those_of_the_set) {
  RecordFiles files;
  files.add(4, Compression::kGzip);
  files.add(4, Compression::kGzip);
  files.add(4, Compression::kGzip);
  const auto whole = open_samples(files.names(), open_local_file, {});
  const SampleSubset some(whole, {1, 3, 9, 11});
  EXPECT_THAT(labels_of(some), ElementsAre(1, 3, 9, 11));
  EXPECT_EQ(some.name_of(2), files.names()[2] + ":1");
  // A file of which nothing was chosen is no block.
  EXPECT_THAT(*some.blocks().ends, ElementsAre(2U, 4U));
}

TEST(SampleSubset, the_first_samples_end_within_a_file) {
  RecordFiles files;
  files.add(4);
  files.add(4);
  const auto whole = open_samples(files.names(), open_local_file, {});
  EXPECT_THAT(labels_of(*first_samples(whole, 6)), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_EQ(first_samples(whole, 8), whole);
}

}  // namespace
}  // namespace gyre::data
