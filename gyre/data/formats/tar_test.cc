// Shards of images come as tar archives from many programs: each one's way to say a long name or a large size must be
// understood, and an archive that was cut off or damaged must be an error that says where.
#include "gyre/data/formats/tar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <string>

#include "gyre/base/error.h"
#include "gyre/data/tar_set.h"
#include "gyre/data/tar_test_support.h"

namespace gyre::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::MemoryFile;
using testing::tar_entry;
using testing::tar_header;

std::vector<std::string> names_of(const std::string& archive) {
  std::vector<std::string> names;
  for (const TarMember& member : index_tar(MemoryFile("a.tar", archive))) {
    names.push_back(member.name + "=" + archive.substr(member.offset_bytes, member.size_bytes));
  }
  return names;
}

std::string error_of(const std::string& archive) {
  try {
    static_cast<void>(names_of(archive));
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

const std::string kEnd(2 * kTarBlockBytes, '\0');

TEST(Tar, names_are_read_however_long_they_are) {
  const std::string long_name(150, 'n');
  const std::string pax_record = "path=" + long_name + "\n";
  std::string with_prefix = tar_header("name.jpg", 3, '0');
  std::memcpy(with_prefix.data() + 345, "folder", 6);
  testing::finish_header(with_prefix);
  EXPECT_THAT(names_of(tar_entry("a.jpg", "one") + tar_entry("folder/", "", '5') + tar_entry("link", "", '2') +
                       tar_entry("././@LongLink", long_name + '\0', 'L') + tar_entry("short", "two") +
                       tar_entry("pax", "160 " + pax_record, 'x') + tar_entry("short", "three") +
                       testing::padded(with_prefix + "abc") + tar_entry("b.jpg", "") + kEnd),
              ElementsAre("a.jpg=one", long_name + "=two", long_name + "=three", "folder/name.jpg=abc", "b.jpg="));
}

TEST(Tar, sizes_come_in_octal_in_binary_and_from_pax) {
  std::string binary = tar_header("binary", 0, '0');
  binary.replace(124, 12, std::string("\x80\0\0\0\0\0\0\0\0\0\0\x05", 12));
  testing::finish_header(binary);
  std::string unknown = tar_header("pax", 0, '0');
  EXPECT_THAT(names_of(testing::padded(binary + "12345") + tar_entry("x", "10 size=3\n", 'x') +
                       testing::padded(unknown + "abc") + kEnd),
              ElementsAre("binary=12345", "pax=abc"));
}

TEST(Tar, an_archive_that_ends_without_a_block_of_zeros_was_cut_off) {
  EXPECT_THAT(error_of(tar_entry("a", "one") + tar_entry("b", "two")),
              HasSubstr("a.tar ends at byte 2048 behind entry 2 without the block of zeros"));
  EXPECT_THAT(error_of(tar_header("a", 3, '0') + "one"), HasSubstr("cut off"));
  EXPECT_THAT(names_of(tar_entry("a", "one") + std::string(kTarBlockBytes, '\0')), ElementsAre("a=one"));
  EXPECT_THAT(names_of(""), ElementsAre());
}

TEST(Tar, archives_that_were_appended_to_one_another_are_read_like_one) {
  const std::string padding(18 * kTarBlockBytes, '\0');  // GNU tar fills its last record up.
  EXPECT_THAT(names_of(tar_entry("a", "one") + kEnd + padding + tar_entry("b", "two") + kEnd),
              ElementsAre("a=one", "b=two"));
  EXPECT_THAT(error_of(tar_entry("a", "one") + kEnd + tar_entry("b", "two")), HasSubstr("cut off"));
  EXPECT_THAT(error_of(tar_entry("a", "one") + kEnd + std::string(kTarBlockBytes, 'x')),
              HasSubstr("the entry at byte 2048 has a wrong checksum"));
}

TEST(Tar, damage_is_named_with_its_place) {
  const std::string good = tar_entry("a", "one") + tar_entry("b", "two") + kEnd;
  EXPECT_THAT(error_of(good.substr(0, 1024 + 514)), HasSubstr("a.tar: the entry at byte 1024 has 3 bytes of which"));
  EXPECT_THAT(error_of(good.substr(0, 1100)), HasSubstr("the entry at byte 1024 is cut off"));
  std::string damaged = good;
  damaged[1030] ^= 1;
  EXPECT_THAT(error_of(damaged), HasSubstr("the entry at byte 1024 has a wrong checksum"));
  EXPECT_THAT(error_of(std::string(600, 'x')), HasSubstr("not a tar archive"));
  EXPECT_THAT(error_of("short"), HasSubstr("not a tar archive"));
  EXPECT_THAT(error_of("\x1f\x8b\x08" + std::string(600, 'x')), HasSubstr("compressed archive"));
  EXPECT_THAT(error_of(tar_entry("x", "99 size=3\n", 'x')), HasSubstr("at byte 0 is a pax header that cannot be read"));
  EXPECT_THAT(error_of(tar_entry("s", "data", 'S')), HasSubstr("sparse"));
  EXPECT_THAT(error_of(tar_header("big", std::uint64_t{1} << 32, '0')), HasSubstr("has 4294967296 bytes of which"));
}

class TarSetTest : public ::testing::Test {
 protected:
  TarSet open(const std::string& archive) {
    contents_ = archive;
    return {
        {"shard.tar"}, [this](const std::string& name) { return std::make_unique<MemoryFile>(name, contents_); }, 1};
  }
  std::string contents_;
};

TEST_F(TarSetTest, neighbours_of_one_key_are_a_sample) {
  const TarSet set = open(tar_entry("d/0.jpg", "JPEG") + tar_entry("d/0.cls", " 7\n") + tar_entry("d/README", "no") +
                          tar_entry("d/1.seg.PNG", "mask") + tar_entry("d/1.json", R"({"label": 3, "name": "x"})") +
                          tar_entry("d/1.cls", "cat") + kEnd);
  EXPECT_EQ(set.count(), 2U);
  EXPECT_EQ(*set.blocks().ends, (std::vector<std::uint64_t>{2}));
  const auto reader = set.make_reader(nullptr);
  StageTimes times;
  const Example second = reader->read_sample(1, times);
  EXPECT_THAT(second.names(), ElementsAre("seg.png", "json", "json/label", "cls", "label", "__key__"));
  EXPECT_EQ(as_text(second.find("__key__")->bytes().front()), "d/1");
  std::array<std::int64_t, 1> label{};
  EXPECT_TRUE(second.find("json/label")->copy_ints(label));
  EXPECT_EQ(label[0], 3);
  EXPECT_EQ(second.find("cls")->kind(), FeatureKind::kBytes);  // A name, no number.
  EXPECT_THAT(reader->position(), HasSubstr("shard.tar, sample 1, whose contents begin at byte 3584"));
  const Example first = reader->read_sample(0, times);
  EXPECT_EQ(as_text(first.find("image")->bytes().front()), "JPEG");
  EXPECT_TRUE(first.find("label")->copy_ints(label));
  EXPECT_EQ(label[0], 7);
}

TEST_F(TarSetTest, what_is_no_sample_is_refused) {
  const auto error = [&](const std::string& archive) -> std::string {
    try {
      static_cast<void>(open(archive));
    } catch (const Error& failure) {
      return failure.what();
    }
    return "no error";
  };
  EXPECT_THAT(error(tar_entry("README", "x") + kEnd), HasSubstr("hold no sample"));
  EXPECT_THAT(error(tar_entry("0.jpg", "x") + tar_entry("0.JPG", "y") + kEnd), HasSubstr("two files of one sample"));
}

}  // namespace
}  // namespace gyre::data
