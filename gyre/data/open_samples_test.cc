// The same images must be the same samples, whichever of the layouts that people keep them in; what a set is made of is
// told by its content, and what does not belong together is an error by name.
#include "gyre/data/open_samples.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <string>

#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/data/formats/inflate.h"
#include "gyre/data/record_files_test_support.h"
#include "gyre/data/tar_test_support.h"

namespace gyre::data {
namespace {

using ::testing::HasSubstr;
using testing::RecordFiles;

std::shared_ptr<const SampleSet> open_all(std::vector<std::string> names,
                                          SampleFormat format = SampleFormat::kByContent) {
  return open_samples(std::move(names), open_local_file, {.format = format});
}

std::string error_of(const std::vector<std::string>& names, SampleFormat format = SampleFormat::kByContent) {
  try {
    const auto set = open_all(names, format);
    StageTimes times;
    const auto reader = set->make_reader(nullptr);
    for (std::uint64_t i = 0; i < set->count(); ++i) static_cast<void>(reader->read_sample(i, times));
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

/// "image:label" of each sample.
std::vector<std::string> samples_of(const SampleSet& set) {
  std::vector<std::string> samples;
  const auto reader = set.make_reader(nullptr);
  StageTimes times;
  for (std::uint64_t i = 0; i < set.count(); ++i) {
    const Example sample = reader->read_sample(i, times);
    std::array<std::int64_t, 1> label{-1};
    const Feature* const found = sample.find("label");
    EXPECT_TRUE(found == nullptr || found->copy_ints(label));
    samples.push_back(std::string(as_text(sample.find("image")->bytes().front())) + ":" + std::to_string(label[0]));
  }
  return samples;
}

void write(const std::string& path, std::string_view contents) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << contents;
}

std::string idx(std::initializer_list<unsigned char> shape, const std::string& values) {
  std::string file{0, 0, 8, static_cast<char>(shape.size())};
  for (const unsigned char extent : shape) file += std::string(3, '\0') + static_cast<char>(extent);
  return file + values;
}

TEST(OpenSamples, a_folder_of_folders_has_a_class_for_each_in_the_order_of_their_names) {
  RecordFiles files;
  write(files.path("set/dog/b.JPEG"), "d1");
  write(files.path("set/cat/2/x.png"), "c2");
  write(files.path("set/cat/1.jpg"), "c1");
  write(files.path("set/cat/notes.txt"), "no");
  const auto set = open_all({files.path("set")});
  EXPECT_THAT(samples_of(*set), ::testing::ElementsAre("c1:0", "c2:0", "d1:1"));
  EXPECT_THAT(set->classes(), ::testing::ElementsAre("cat", "dog"));
  std::filesystem::create_directories(files.path("set/empty"));
  EXPECT_THAT(error_of({files.path("set")}), HasSubstr("set/empty holds no .jpg, .jpeg or .png file"));
  std::filesystem::create_directories(files.path("none"));
  EXPECT_THAT(error_of({files.path("none")}), HasSubstr("has no folders"));
  EXPECT_THAT(error_of({files.path("missing")}, SampleFormat::kImageFolder), HasSubstr("does not exist"));
}

TEST(OpenSamples, archives_are_told_by_content) {
  RecordFiles files;
  write(files.path("a"),
        testing::tar_entry("0.png", "one") + testing::tar_entry("0.cls", "5") + std::string(1024, '\0'));
  write(files.path("b"),
        testing::tar_entry("1.jpg", "two") + testing::tar_entry("1.cls", "6") + std::string(1024, '\0'));
  EXPECT_THAT(samples_of(*open_all({files.path("a"), files.path("b")})), ::testing::ElementsAre("one:5", "two:6"));
}

// A filter that keeps nothing of a shard leaves such an archive.
TEST(OpenSamples, empty_files_in_front_do_not_hide_the_format) {
  RecordFiles files;
  const std::string end(10240, '\0');
  write(files.path("empty"), end);
  write(files.path("a"), testing::tar_entry("0.png", "one") + testing::tar_entry("0.cls", "5") + end);
  EXPECT_THAT(samples_of(*open_all({files.path("empty"), files.path("empty"), files.path("a")})),
              ::testing::ElementsAre("one:5"));
  EXPECT_THAT(error_of({files.path("empty")}), HasSubstr("hold no sample"));
  write(files.path("nothing"), "");
  files.add(3);
  EXPECT_EQ(open_all({files.path("nothing"), files.names()[0]})->count(), 3U);
  EXPECT_THAT(error_of({files.path("nothing")}), HasSubstr("hold no record"));
  EXPECT_EQ(error_of({files.path("nothing"), files.path("a")}), "no error");
}

TEST(OpenSamples, mnists_files_are_read_compressed_or_not) {
  RecordFiles files;
  const std::string images = idx({3, 2, 2}, "aaaabbbbcccc");
  const Bytes packed = deflate(Compression::kGzip, as_bytes(images));
  write(files.path("train-images-idx3-ubyte"), images);
  write(files.path("train-images-idx3-ubyte.gz"), as_text(packed));
  write(files.path("train-labels-idx1-ubyte"), idx({3}, std::string("\x07\x00\x02", 3)));
  for (const std::string name : {"train-images-idx3-ubyte", "train-images-idx3-ubyte.gz"}) {
    const auto set = open_all({files.path(name), files.path("train-labels-idx1-ubyte")});
    EXPECT_THAT(samples_of(*set), ::testing::ElementsAre("aaaa:7", "bbbb:0", "cccc:2"));
    StageTimes times;
    const auto reader = set->make_reader(nullptr);
    const Example sample = reader->read_sample(0, times);
    ASSERT_NE(sample.find("image")->pixel_layout(), nullptr);
    EXPECT_EQ(sample.find("image")->pixel_layout()->channels, 1U);
  }
}

TEST(OpenSamples, an_idx_file_that_is_cut_off_or_of_another_kind_is_refused) {
  RecordFiles files;
  write(files.path("short"), idx({3, 2, 2}, "aaaabbbbccc"));
  EXPECT_THAT(error_of({files.path("short")}), HasSubstr("the header says [3, 2, 2] bytes, and 11 follow it"));
  std::string floats = idx({1, 1, 1}, "x");
  floats[2] = 0x0d;
  write(files.path("floats"), floats);
  EXPECT_THAT(error_of({files.path("floats")}), HasSubstr("type 0x0d are not read"));
  write(files.path("images"), idx({2, 1, 1}, "xy"));
  write(files.path("labels"), idx({3}, "xyz"));
  EXPECT_THAT(error_of({files.path("images"), files.path("labels")}), HasSubstr("2 images and"));
  EXPECT_THAT(error_of({files.path("images"), files.path("images")}), HasSubstr("both images"));
  EXPECT_THAT(error_of({files.path("labels")}), HasSubstr("holds images"));
  write(files.path("begin"), std::string("\0\0\x08\x03\0", 5));
  EXPECT_THAT(error_of({files.path("begin")}), HasSubstr("ends within its header"));
}

TEST(OpenSamples, cifar_files_are_told_by_their_names) {
  RecordFiles files;
  write(files.path("data_batch_1.bin"), '\x03' + std::string(3072, 'p') + '\x09' + std::string(3072, 'q'));
  const auto set = open_all({files.path("data_batch_1.bin")});
  EXPECT_THAT(samples_of(*set), ::testing::ElementsAre(std::string(3072, 'p') + ":3", std::string(3072, 'q') + ":9"));
}

TEST(OpenSamples, everything_else_is_taken_for_tfrecords) {
  RecordFiles files;
  files.add(3);
  EXPECT_EQ(open_all(files.names())->count(), 3U);
  write(files.path("text"), "what is this?");
  EXPECT_THAT(error_of({files.path("text")}), HasSubstr("not a TFRecord file"));
}

}  // namespace
}  // namespace gyre::data
