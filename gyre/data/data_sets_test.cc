// Which sets of a folder a program uses: one that it did not recognise was silently left aside, or became a class.
#include "gyre/data/data_sets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "gyre/base/error.h"
#include "gyre/data/record_files_test_support.h"

namespace gyre::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class DataSetsTest : public ::testing::Test {
 protected:
  void write(const std::string& name) const {
    const std::filesystem::path path = root() / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << "x";
  }
  std::filesystem::path root() const { return files_.path("data"); }
  DataSets found(bool hold_out = false) const { return find_data_sets(*local_folders(), root().string(), hold_out); }
  std::string error_of(bool hold_out = false) const {
    try {
      found(hold_out);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

 private:
  testing::RecordFiles files_;
};

std::string name_of(const std::optional<SetPlace>& set) { return set ? set->name : "none"; }

TEST_F(DataSetsTest, the_validation_set_stands_before_the_test_set) {
  write("Training/a/1.jpg");
  write("Testing/a/1.jpg");
  EXPECT_EQ(name_of(found().training), "Training");
  EXPECT_EQ(name_of(found().validation), "Testing");
  EXPECT_TRUE(found().validation_is_test_set);
  EXPECT_THAT(found().left_aside, IsEmpty());
  write("Valid/a/1.jpg");
  EXPECT_EQ(name_of(found().validation), "Valid");
  EXPECT_FALSE(found().validation_is_test_set);
  EXPECT_THAT(found().left_aside, ElementsAre("Testing"));
}

TEST_F(DataSetsTest, a_part_of_the_training_set_is_never_held_out_of_nor_replaced_by_the_test_set) {
  write("train/a/1.jpg");
  write("test/a/1.jpg");
  EXPECT_EQ(name_of(found(true).training), "train");
  EXPECT_EQ(name_of(found(true).validation), "none");
  EXPECT_THAT(found(true).left_aside, ElementsAre("test"));
  write("val/a/1.jpg");
  EXPECT_EQ(name_of(found(true).validation), "val");  // The caller decides whether it is one.
}

TEST_F(DataSetsTest, files_are_grouped_by_what_stands_before_the_hyphen_and_give_way_to_folders) {
  for (const char* name : {"train-1-of-2", "train-0-of-2", "Validation-0", "t10k-0", "trains-0", "train.tar",
                           ".train-9", "train-labels.csv", "train-1.jpg"}) {
    write(name);
  }
  const DataSets sets = found();
  EXPECT_EQ(name_of(sets.training), "train-*");
  EXPECT_THAT(sets.training->paths,
              ElementsAre((root() / "train-0-of-2").string(), (root() / "train-1-of-2").string()));
  EXPECT_EQ(name_of(sets.validation), "Validation-*");
  EXPECT_THAT(sets.left_aside, ElementsAre("t10k-*"));
  write("train/a/1.jpg");
  EXPECT_EQ(name_of(found().training), "train");
  EXPECT_THAT(found().left_aside, ElementsAre("train-*", "t10k-*"));
}

TEST_F(DataSetsTest, two_sets_of_one_kind_are_an_error_where_one_would_be_used) {
  write("train/a/1.jpg");
  write("test/a/1.jpg");
  write("Test/a/1.jpg");
  EXPECT_THAT(error_of(), HasSubstr("data has two test sets, Test and test; move one of them away"));
  EXPECT_THAT(found(true).left_aside, ElementsAre("Test", "test"));
  write("val/a/1.jpg");
  EXPECT_THAT(found().left_aside, ElementsAre("Test", "test"));
  write("training/a/1.jpg");
  EXPECT_THAT(error_of(true), HasSubstr("two training sets, train and training"));
}

TEST_F(DataSetsTest, class_folders_are_the_training_set_of_which_a_part_is_held_out) {
  write("cat/1.jpg");
  write("dog/1.jpg");
  write("logs/run.txt");
  EXPECT_EQ(name_of(found().training), "none");
  EXPECT_THAT(found().classes, ElementsAre("cat", "dog"));
  EXPECT_THAT(found(true).training->paths, ElementsAre(root().string()));
  write("Test/1.jpg");
  EXPECT_THAT(error_of(true), HasSubstr("has a folder Test beside class folders (cat, …), and it is not clear"));
}

// VOC, COCO and CIFAR-100 have a class of this name.
TEST_F(DataSetsTest, trains_are_a_class_among_others) {
  write("train/1.jpg");
  EXPECT_EQ(name_of(found(true).training), "train");
  write("bus/1.jpg");
  write("tram/1.jpg");
  EXPECT_THAT(found(true).training->paths, ElementsAre(root().string()));
  EXPECT_THAT(found().classes, ElementsAre("bus", "train", "tram"));
  write("train/bus/1.jpg");
  EXPECT_EQ(name_of(found(true).training), "train");
}

}  // namespace
}  // namespace gyre::data
