// Folders as people have them: what a desktop, an archive program or a notebook leaves there must not become a class, a
// sample or the data set itself, and whatever is left out must be said.
#include "gyre/data/image_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "gyre/base/error.h"
#include "gyre/data/open_samples.h"
#include "gyre/data/record_files_test_support.h"

namespace gyre::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ImageFolderTest : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return files_.path(name); }
  void write(const std::string& name, std::string_view contents = "x") const {
    std::filesystem::create_directories(std::filesystem::path(path(name)).parent_path());
    std::ofstream(path(name), std::ios::binary) << contents;
  }
  void make_folder(const std::string& name) const { std::filesystem::create_directories(path(name)); }
  std::shared_ptr<const SampleSet> open(const std::string& folder, const SampleOptions& how = {}) const {
    return open_samples(files_of_folder(path(folder), open_local_file), open_local_file, how);
  }
  std::string error_of(const std::string& folder, const SampleOptions& how = {}) const {
    try {
      open(folder, how);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }
  static std::vector<std::string> names_of(const SampleSet& set) {
    std::vector<std::string> names;
    for (std::uint64_t i = 0; i < set.count(); ++i) names.push_back(set.name_of(i));
    return names;
  }
  const testing::RecordFiles& files() const { return files_; }
  testing::RecordFiles& files() { return files_; }

 private:
  testing::RecordFiles files_;
};

TEST_F(ImageFolderTest, hidden_files_and_folders_are_left_out_and_counted) {
  write("set/.DS_Store");
  write("set/.ipynb_checkpoints/cat-checkpoint.png");
  write("set/__MACOSX/cat/._1.jpg");
  write("set/cat/._1.jpg");
  write("set/cat/.thumbnails/1.jpg");
  write("set/cat/1.jpg");
  write("set/dog/2.png");
  const auto set = open("set");
  EXPECT_THAT(set->classes(), ElementsAre("cat", "dog"));
  EXPECT_THAT(names_of(*set), ElementsAre("cat/1.jpg", "dog/2.png"));
  EXPECT_EQ(set->left_out(), "2 hidden files, 3 hidden folders");
}

TEST_F(ImageFolderTest, a_file_beside_the_class_folders_never_becomes_the_data_set) {
  write("set/labels.csv", "1.jpg,cat\n");
  write("set/cover.jpg");
  write("set/cat/1.jpg");
  write("set/cat/readme.txt");
  files().add(3);  // A TFRecord file, which is named explicitly if it is wanted.
  std::filesystem::copy_file(files().names()[0], path("set/old.tfrecord"));
  const auto set = open("set");
  EXPECT_THAT(names_of(*set), ElementsAre("cat/1.jpg"));
  EXPECT_EQ(set->left_out(), "1 image beside the class folders, 3 files that are not images (labels.csv, …)");
  make_folder("new/cat");
  write("new/labels.csv", "1.jpg,cat\n");
  EXPECT_THAT(error_of("new"), HasSubstr("new/cat holds no .jpg, .jpeg or .png file"));
}

TEST_F(ImageFolderTest, shards_are_shards_whatever_else_lies_there) {
  files().add(3);
  make_folder("shards/logs");
  write("shards/logs/run.txt");
  write("shards/.DS_Store");
  std::filesystem::copy_file(files().names()[0], path("shards/part-0"));
  EXPECT_EQ(open("shards")->count(), 3U);
  EXPECT_EQ(open("shards")->name_of(2), path("shards/part-0") + ":2");
}

TEST_F(ImageFolderTest, an_empty_class_is_an_error_and_one_class_is_a_set) {
  write("set/cat/1.jpg");
  EXPECT_THAT(open("set")->classes(), ElementsAre("cat"));
  make_folder("set/dog");
  write("set/cow/.keep");
  EXPECT_THAT(error_of("set"), HasSubstr("set/cow, "));
  EXPECT_THAT(error_of("set"), HasSubstr("set/dog hold no .jpg, .jpeg or .png file; every folder there is a class"));
  make_folder("nothing");
  EXPECT_THAT(error_of("nothing"), HasSubstr("nothing is empty"));
}

TEST_F(ImageFolderTest, a_models_classes_number_the_labels_by_name) {
  write("set/cow/1.jpg");
  write("set/dog/2.jpg");
  write("set/ant/3.jpg");
  make_folder("set/cat");
  const auto set = open("set", {.classes = {"cat", "cow", "dog"}});
  EXPECT_THAT(set->classes(), ElementsAre("cat", "cow", "dog", "ant"));
  EXPECT_THAT(names_of(*set), ElementsAre("ant/3.jpg", "cow/1.jpg", "dog/2.jpg"));
  EXPECT_THAT(std::vector(set->labels().begin(), set->labels().end()), ElementsAre(3U, 1U, 2U));
}

TEST_F(ImageFolderTest, names_are_bytes_in_any_script_and_spelling) {
  write("set/Ägypten/größe 1.JPG");
  write("set/日本/富士 山.png");
  write("set/a[b]*/x y.jpeg");
  write("set/\xe9t\xe9/1.jpg");  // Latin-1, from an old archive.
  const auto set = open("set");
  EXPECT_THAT(names_of(*set),
              ElementsAre("a[b]*/x y.jpeg", "Ägypten/größe 1.JPG", "日本/富士 山.png", "\xe9t\xe9/1.jpg"));
  StageTimes times;
  const auto reader = set->make_reader(nullptr);
  for (std::uint64_t i = 0; i < set->count(); ++i) EXPECT_NE(reader->read_sample(i, times).find("image"), nullptr);
}

TEST_F(ImageFolderTest, links_count_as_what_they_lead_to) {
  write("store/1.jpg");
  make_folder("set/cat");
  std::filesystem::create_symlink(path("store/1.jpg"), path("set/cat/linked.jpg"));
  std::filesystem::create_directory_symlink(path("store"), path("set/dog"));
  EXPECT_THAT(names_of(*open("set")), ElementsAre("cat/linked.jpg", "dog/1.jpg"));
  std::filesystem::create_symlink(path("store/2.jpg"), path("set/cat/gone.jpg"));
  EXPECT_THAT(error_of("set"), HasSubstr("set/cat/gone.jpg is a link to " + path("store/2.jpg") + ", which does not"));
  std::filesystem::remove(path("set/cat/gone.jpg"));
  std::filesystem::create_directory_symlink(path("set"), path("set/dog/back"));
  EXPECT_THAT(error_of("set"), HasSubstr("set/dog/back leads to " + path("set") + ", a folder of the whole data set"));
  std::filesystem::remove(path("set/dog/back"));
  std::filesystem::create_directory_symlink(path("set/dog"), path("set/dog/back"));
  EXPECT_THAT(error_of("set"), HasSubstr("does a link lead back?"));
}

// A network cannot learn that an image is of two classes.
TEST_F(ImageFolderTest, a_folder_that_belongs_to_two_classes_through_a_link_is_an_error) {
  write("set/cat/1.jpg");
  write("set/dog/small/2.jpg");
  std::filesystem::create_directory_symlink("dog", path("set/puppy"));
  const std::string message =
      "set/puppy leads to " + path("set/dog") + ", a folder of the class dog, so its images would";
  EXPECT_THAT(error_of("set"), HasSubstr(message));
  EXPECT_THAT(error_of("set", {.classes = {"cat", "dog"}}), HasSubstr(message));
  std::filesystem::remove(path("set/puppy"));
  std::filesystem::create_directory_symlink("../dog/small", path("set/cat/more"));
  EXPECT_THAT(error_of("set"),
              HasSubstr("set/dog/small leads to " + path("set/dog/small") + ", a folder of the class cat"));
  std::filesystem::remove(path("set/cat/more"));
  std::filesystem::create_directory_symlink("small", path("set/dog/again"));  // Of one class.
  EXPECT_THAT(names_of(*open("set")), ElementsAre("cat/1.jpg", "dog/again/2.jpg", "dog/small/2.jpg"));
}

// They became classes, and a network learnt which images are for training.
TEST_F(ImageFolderTest, a_folder_of_sets_is_not_a_folder_of_classes) {
  write("data/Train/cat/1.jpg");
  write("data/Train/dog/1.jpg");
  write("data/Test/cat/1.jpg");
  EXPECT_THAT(error_of("data"), HasSubstr("data has folders for sets (Test, Train), not for classes; give one of these "
                                          "folders instead, as " +
                                          path("data/Test")));
  EXPECT_THAT(open("data/Train")->classes(), ElementsAre("cat", "dog"));
  write("traffic/bus/1.jpg");
  write("traffic/train/1.jpg");
  EXPECT_THAT(open("traffic")->classes(), ElementsAre("bus", "train"));
  std::filesystem::remove_all(path("traffic/bus"));
  EXPECT_THAT(open("traffic", {.classes = {"bus", "train"}})->classes(), ElementsAre("bus", "train"));
}

// Opening one to read it would wait for a writer for ever.
TEST_F(ImageFolderTest, a_pipe_is_not_an_image) {
  write("set/cat/1.jpg");
  ASSERT_EQ(::mkfifo(path("set/cat/2.jpg").c_str(), 0600), 0);
  EXPECT_THAT(names_of(*open("set")), ElementsAre("cat/1.jpg"));
}

TEST_F(ImageFolderTest, images_of_other_kinds_are_refused_by_name) {
  write("set/cat/1.jpg");
  write("set/cat/2.WebP");
  EXPECT_THAT(error_of("set"), HasSubstr("set/cat/2.WebP is a WebP image, which is not read; convert"));
  write("flat/scan.tiff");
  EXPECT_THAT(error_of("flat"), HasSubstr("flat/scan.tiff is a TIFF image"));
}

TEST_F(ImageFolderTest, images_without_class_folders_have_no_labels) {
  write("flat/b.jpg");
  write("flat/a.png");
  write("flat/.DS_Store");
  write("flat/notes.txt");
  const auto set = open("flat");
  EXPECT_THAT(names_of(*set), ElementsAre("a.png", "b.jpg"));
  EXPECT_THAT(set->labels(), IsEmpty());
  EXPECT_EQ(set->left_out(), "1 hidden file, 1 file that is not an image (notes.txt)");
  StageTimes times;
  EXPECT_EQ(set->make_reader(nullptr)->read_sample(0, times).find("label"), nullptr);
  EXPECT_THAT(error_of("flat", {.features = {"image", "label"}}), HasSubstr("images that have no labels"));
}

TEST_F(ImageFolderTest, images_can_be_listed_one_by_one_and_below_folders) {
  write("a/1.jpg");
  write("a/deep/2.jpg");
  write("b/no-extension", "\xff\xd8\xff\xe0");
  const SampleOptions images{.format = SampleFormat::kImages};
  const auto listed = open_samples({path("b/no-extension"), path("a")}, open_local_file, images);
  EXPECT_THAT(names_of(*listed), ElementsAre(path("b/no-extension"), path("a/1.jpg"), path("a/deep/2.jpg")));
  EXPECT_THAT(names_of(*open_samples({path("a")}, open_local_file, images)), ElementsAre("1.jpg", "deep/2.jpg"));
  EXPECT_THAT(names_of(*open_samples({path("b/no-extension")}, open_local_file, {})),
              ElementsAre(path("b/no-extension")));
  EXPECT_THROW(open_samples({path("a/9.jpg")}, open_local_file, images), Error);
}

}  // namespace
}  // namespace gyre::data
