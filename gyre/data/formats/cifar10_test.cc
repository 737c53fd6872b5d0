// Real CIFAR-10 works by pointing --data-dir at it: these tests hold the reader to its two layouts and its messages.
#include "gyre/data/formats/cifar10.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gyre/base/error.h"

namespace gyre::data {
namespace {

using namespace std::string_literals;
using testing::HasSubstr;
namespace fs = std::filesystem;

struct Cifar10 {
  Cifar10Images train;
  Cifar10Images test;
  fs::path folder;
};

Cifar10 open_cifar10(const fs::path& folder) {
  const std::optional<Cifar10Files> files = find_cifar10(*local_folders(), folder);
  if (!files) throw Error(ErrorCode::kNotFound, "none of its files is there");
  return {open_cifar10_files(files->train, open_local_file), open_cifar10_files(files->test, open_local_file),
          files->folder};
}

class Cifar10Test : public testing::Test {
 protected:
  Cifar10Test() {
    std::string pattern = (fs::temp_directory_path() / "gyre-cifar10-test-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~Cifar10Test() override { fs::remove_all(folder_); }

  static void write(const fs::path& path, const std::string& content) {
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << content;
  }

  std::string failure() const {
    try {
      open_cifar10(folder_);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  fs::path folder_;
};

/// Image `number`'s pixels: all bytes of plane p have the value number * 3 + p.
std::string pixels(int number) {
  std::string result;
  for (int plane = 0; plane < 3; ++plane) result += std::string(1024, static_cast<char>(number * 3 + plane));
  return result;
}

std::string binary_file(int first, int count) {
  std::string content;
  for (int i = first; i < first + count; ++i) content += static_cast<char>(i % 10) + pixels(i);
  return content;
}

std::string u32(std::size_t value) {
  std::string result;
  for (int i = 0; i < 4; ++i) result += static_cast<char>(value >> (8 * i));
  return result;
}

/// As Python 2 wrote the originals, in their order of keys.
std::string python_file(int first, int count) {
  std::string labels;
  std::string content;
  for (int i = first; i < first + count; ++i) {
    labels += "K"s + static_cast<char>(i % 10);
    content += pixels(i);
  }
  return "\x80\x02}q\x01(U\x0b"s
         "batch_labelq\x02U\x15training batch 1 of 5q\x03U\x06labelsq\x04]q\x05("s +
         labels +
         "eU\x04"s
         "dataq\x06"s
         "cnumpy.core.multiarray\n_reconstruct\nq\x07"s
         "cnumpy\nndarray\nq\x08K\x00\x85U\x01"s
         "b\x87Rq\x09(K\x01K"s +
         static_cast<char>(count) +
         "M\x00\x0c\x86"s
         "cnumpy\ndtype\nq\x0aU\x02u1K\x00K\x01\x87Rq\x0b(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T"s +
         u32(content.size()) + content +
         "tbU\x09"s
         "filenamesq\x0c]q\x0dU\x05"s
         "a.pngau."s;
}

void write_all_files(const fs::path& folder, bool binary) {
  for (int file = 0; file < 6; ++file) {
    const std::string stem = file == 5 ? "test_batch" : "data_batch_" + std::to_string(file + 1);
    const std::string content = binary ? binary_file(file * 4, 4) : python_file(file * 4, 4);
    fs::create_directories(folder);
    std::ofstream(folder / (stem + (binary ? ".bin" : "")), std::ios::binary) << content;
  }
}

void expect_images(const Cifar10& set) {
  EXPECT_EQ(set.train.count(), 20U);
  EXPECT_EQ(set.test.count(), 4U);
  std::array<std::byte, kCifar10ImageBytes> image;
  for (int i = 0; i < 24; ++i) {
    const bool train = i < 20;
    const std::uint64_t index = static_cast<std::uint64_t>(train ? i : i - 20);
    const std::uint8_t label = (train ? set.train : set.test).read(index, image);
    EXPECT_EQ(label, i % 10);
    EXPECT_EQ(as_text(image), pixels(i)) << "image " << i;
  }
}

TEST_F(Cifar10Test, reads_the_binary_layout) {
  write_all_files(folder_, true);
  expect_images(open_cifar10(folder_));
}

TEST_F(Cifar10Test, reads_the_python_layout) {
  write_all_files(folder_, false);
  expect_images(open_cifar10(folder_));
}

TEST_F(Cifar10Test, finds_the_layouts_in_their_usual_subfolders_and_prefers_the_binary_one) {
  write_all_files(folder_ / "cifar-10-batches-py", false);
  EXPECT_EQ(open_cifar10(folder_).folder, folder_ / "cifar-10-batches-py");
  write_all_files(folder_ / "cifar-10-batches-bin", true);
  const Cifar10 set = open_cifar10(folder_);
  EXPECT_EQ(set.folder, folder_ / "cifar-10-batches-bin");
  expect_images(set);
}

TEST_F(Cifar10Test, names_of_classes_are_those_of_the_text_else_of_the_pickle) {
  const FileOpener open = open_local_file;
  EXPECT_TRUE(cifar10_class_names(folder_, open).empty());
  const fs::path pickle = folder_ / "batches.meta";
  const std::string whole =
      "\x80\x02}q\x00(U\x0blabel_namesq\x01]q\x02(U\x03"
      "catq\x03U\x03"
      "dogq\x04"
      "eu."s;
  std::ofstream(pickle, std::ios::binary) << whole;
  EXPECT_EQ(cifar10_class_names(folder_, open), (std::vector<std::string>{"cat", "dog"}));
  for (const std::string& broken : {whole.substr(0, whole.size() - 5), "\x80\x02}q\x00."s, ""s}) {
    std::ofstream(pickle, std::ios::binary) << broken;
    EXPECT_THAT(([&] { static_cast<void>(cifar10_class_names(folder_, open)); }),
                testing::ThrowsMessage<Error>(HasSubstr(pickle.string())));
  }
  std::ofstream(folder_ / "batches.meta.txt") << "red fox\r\nowl\n\n";
  EXPECT_EQ(cifar10_class_names(folder_, open), (std::vector<std::string>{"red fox", "owl"}));
}

TEST_F(Cifar10Test, an_empty_folder_holds_no_set_and_a_missing_one_is_an_error) {
  EXPECT_FALSE(find_cifar10(*local_folders(), folder_).has_value());
  fs::remove_all(folder_);
  EXPECT_THAT(failure(), HasSubstr("does not exist"));
}

TEST_F(Cifar10Test, a_missing_file_is_named) {
  write_all_files(folder_, true);
  fs::remove(folder_ / "data_batch_3.bin");
  EXPECT_THAT(failure(), HasSubstr("missing: data_batch_3.bin"));
}

TEST_F(Cifar10Test, a_file_cut_short_is_named) {
  write_all_files(folder_, true);
  fs::resize_file(folder_ / "data_batch_2.bin", 10'000);
  EXPECT_THAT(failure(), testing::AllOf(HasSubstr("data_batch_2.bin"), HasSubstr("10000 bytes")));
}

TEST_F(Cifar10Test, a_pickle_cut_short_is_named) {
  write_all_files(folder_, false);
  fs::resize_file(folder_ / "data_batch_4", 10'000);
  EXPECT_THAT(failure(), testing::AllOf(HasSubstr("data_batch_4"), HasSubstr("cut short")));
}

TEST_F(Cifar10Test, a_label_out_of_range_is_found_when_the_image_is_read) {
  write_all_files(folder_, true);
  write(folder_ / "data_batch_1.bin", std::string(1, '\x0b') + pixels(0));
  const Cifar10 set = open_cifar10(folder_);
  std::array<std::byte, kCifar10ImageBytes> image;
  try {
    set.train.read(0, image);
    FAIL() << "the label 11 was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCorruptData);
    EXPECT_THAT(error.what(), testing::AllOf(HasSubstr("data_batch_1.bin"), HasSubstr("label 11")));
  }
}

TEST_F(Cifar10Test, a_file_that_shrinks_while_it_is_used_is_an_error_not_a_crash) {
  write_all_files(folder_, true);
  const Cifar10 set = open_cifar10(folder_);
  fs::resize_file(folder_ / "data_batch_1.bin", 5000);
  std::array<std::byte, kCifar10ImageBytes> image;
  set.train.read(0, image);
  EXPECT_THROW(set.train.read(2, image), Error);
}

TEST_F(Cifar10Test, a_pickle_with_a_label_too_many_is_refused) {
  std::string content = python_file(0, 2);
  content.insert(content.find("eU\x04"s), "K\x01"s);
  try {
    parse_cifar10_pickle(as_bytes(content), "batch");
    FAIL() << "three labels for two images were accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("2 images and 3 labels"));
  }
}

}  // namespace
}  // namespace gyre::data
