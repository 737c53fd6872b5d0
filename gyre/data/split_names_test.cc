// The names under which people keep their sets: one that is not recognised is a set that is silently not used, or a
// class.
#include "gyre/data/split_names.h"

#include <gtest/gtest.h>

namespace gyre::data {
namespace {

TEST(SplitNames, usual_names_are_recognised_in_any_case) {
  for (const char* name : {"train", "Train", "TRAINING"}) EXPECT_EQ(split_of(name), Split::kTraining) << name;
  for (const char* name : {"val", "valid", "Validation", "VAL"}) EXPECT_EQ(split_of(name), Split::kValidation) << name;
  for (const char* name : {"test", "Testing", "t10k"}) EXPECT_EQ(split_of(name), Split::kTest) << name;
}

TEST(SplitNames, other_names_are_none) {
  for (const char* name : {"", "trains", "train1", "tests", "validated", "invalid", "cat", "trai\xd1", "train "}) {
    EXPECT_FALSE(split_of(name)) << name;
  }
}

}  // namespace
}  // namespace gyre::data
