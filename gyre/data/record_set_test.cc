// Records are numbered through files of any size and compression, and what is wrong with one of them is said with its
// name.
#include "gyre/data/record_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/data/record_files_test_support.h"

namespace gyre::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::label_of;
using testing::RecordFiles;

std::shared_ptr<const RecordSet> open_set(const std::vector<std::string>& names, std::uint64_t records_per_file = 0) {
  return std::make_shared<RecordSet>(names, open_local_file,
                                     RecordSetOptions{.records_per_file = records_per_file, .threads = 3});
}

/// Of a place that cannot say whether a file has changed.
class UnversionedFile : public ReadableFile {
 public:
  explicit UnversionedFile(const std::string& path) : file_(open_local_file(path)) {}

  const std::string& name() const override { return file_->name(); }
  std::uint64_t size_bytes() const override { return file_->size_bytes(); }
  void read_at(std::uint64_t offset_bytes, std::span<std::byte> into) const override {
    file_->read_at(offset_bytes, into);
  }

 private:
  std::unique_ptr<const ReadableFile> file_;
};

void expect_all(const std::shared_ptr<const RecordSet>& set, std::uint64_t step) {
  RecordReader reader(*set, nullptr);
  StageTimes times;
  for (std::uint64_t i = 0; i < set->count(); ++i) {
    const std::uint64_t index = i * step % set->count();
    EXPECT_EQ(label_of(reader.read(index, times)), static_cast<std::int64_t>(index));
  }
  EXPECT_GT(times.total().count(), 0);
}

template <typename Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(RecordSet, files_of_all_kinds_are_one_sequence_in_any_order_of_reading) {
  RecordFiles files;
  files.add(3);
  files.add(0);
  files.add(5, Compression::kGzip);
  files.add(1, Compression::kZlib);
  files.add(4, Compression::kNone, 300'000);  // More than is read at once.
  const auto set = open_set(files.names());
  ASSERT_EQ(set->count(), 13U);
  EXPECT_THAT(*set->blocks().ends, ElementsAre(3, 8, 9, 13));
  expect_all(set, 1);
  expect_all(set, 5);
}

TEST(RecordSet, a_known_number_of_records_saves_opening_the_files) {
  RecordFiles files;
  for (int i = 0; i < 4; ++i) files.add(2, i % 2 == 0 ? Compression::kGzip : Compression::kNone);
  std::atomic<int> opened{0};
  const auto set = std::make_shared<RecordSet>(
      files.names(),
      [&opened](const std::string& name) {
        ++opened;
        return open_local_file(name);
      },
      RecordSetOptions{.records_per_file = 2});
  EXPECT_EQ(set->count(), 8U);
  EXPECT_EQ(opened, 0);
  expect_all(set, 1);
  EXPECT_EQ(opened, 4) << "the second record of a file is read from what the first one has brought";
}

TEST(RecordSet, a_file_with_another_number_of_records_is_named) {
  RecordFiles files;
  files.add(2);
  files.add(3);
  const auto set = open_set(files.names(), 2);
  RecordReader reader(*set, nullptr);
  StageTimes times;
  EXPECT_THAT(error_of([&] { static_cast<void>(reader.read(2, times)); }),
              HasSubstr(files.names()[1] + " holds 3 records, where 2 was expected of each file"));
}

TEST(RecordSet, what_cannot_be_opened_or_read_is_named) {
  RecordFiles files;
  files.add(2);
  const std::string good = files.names()[0];
  EXPECT_THAT(error_of([&] { open_set({good, good + ".missing"}); }), HasSubstr(good + ".missing"));
  EXPECT_THAT(error_of([&] { open_set({"/tmp"}); }), HasSubstr("not a regular file"));
  EXPECT_THAT(error_of([] { open_set({}); }), HasSubstr("at least one file"));
  files.add(0);
  EXPECT_THAT(error_of([&] { open_set({files.names()[1]}); }), HasSubstr("hold no record"));
  std::filesystem::resize_file(good, std::filesystem::file_size(good) - 1);
  EXPECT_THAT(error_of([&] { open_set({good}); }), HasSubstr(good + ": record 1"));
}

TEST(RecordSet, a_file_that_shrinks_after_it_was_counted_is_an_error) {
  RecordFiles files;
  const std::string name = files.add(3, Compression::kNone, 300'000);
  const auto set = open_set(files.names());
  std::filesystem::resize_file(name, 700'000);
  RecordReader reader(*set, nullptr);
  StageTimes times;
  EXPECT_THAT(error_of([&] { static_cast<void>(reader.read(2, times)); }), HasSubstr(name));
}

TEST(RecordSet, a_file_that_loses_a_part_of_its_last_checksum_has_become_shorter) {
  for (std::uintmax_t lost = 1; lost <= 5; ++lost) {
    RecordFiles files;
    const std::string name = files.add(3);
    const auto open = [](const std::string& path) { return std::make_unique<UnversionedFile>(path); };
    const auto set = std::make_shared<RecordSet>(files.names(), open, RecordSetOptions{});
    std::filesystem::resize_file(name, std::filesystem::file_size(name) - lost);
    RecordReader reader(*set, nullptr);
    reader.expect_neighbours([] { return std::vector<std::uint64_t>(); });
    StageTimes times;
    EXPECT_THAT(error_of([&] { static_cast<void>(reader.read(0, times)); }), HasSubstr(name + " has become shorter"));
  }
}

TEST(RecordSet, a_wrong_number_of_records_that_is_larger_than_the_file_is_named) {
  RecordFiles files;
  const std::string name = files.add(3, Compression::kNone, 300'000);
  const auto set = open_set(files.names(), 5'000'000);
  EXPECT_EQ(set->blocks().ends->back(), 5'000'000U) << "blocks are what the user says";
  RecordReader reader(*set, nullptr);
  StageTimes times;
  EXPECT_THAT(error_of([&] { static_cast<void>(reader.read(0, times)); }), HasSubstr(name + " holds 3 records"));
}

}  // namespace
}  // namespace gyre::data
