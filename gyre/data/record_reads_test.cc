// How much a loader reads of a set of records, in every order: a file that was read again for each of its samples cost
// hundreds of times its bytes, and nothing but time showed it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/data/loader.h"
#include "gyre/data/record_files_test_support.h"
#include "gyre/data/record_set.h"

namespace gyre::data {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::RecordFiles;

struct Count {
  std::atomic<std::uint64_t> opened{0};
  std::atomic<std::uint64_t> reads{0};
  std::atomic<std::uint64_t> bytes{0};
};

class CountedFile : public ReadableFile {
 public:
  CountedFile(const std::string& name, Count& count) : file_(open_local_file(name)), count_(count) { ++count.opened; }

  const std::string& name() const override { return file_->name(); }
  std::uint64_t size_bytes() const override { return file_->size_bytes(); }
  void read_at(std::uint64_t offset_bytes, std::span<std::byte> into) const override {
    ++count_.reads;
    count_.bytes += into.size();
    file_->read_at(offset_bytes, into);
  }

 private:
  std::unique_ptr<const ReadableFile> file_;
  Count& count_;
};

/// A set of `files` files, of so many records each.
class RecordReads : public ::testing::Test {
 protected:
  void write(int files, std::uint64_t records, Compression compression, std::size_t values) {
    for (int i = 0; i < files; ++i) {
      files_.add(records, compression, values);
      stored_bytes_ += std::filesystem::file_size(files_.names().back());
    }
    samples_ = static_cast<std::uint64_t>(files) * records;
  }

  std::shared_ptr<const RecordSet> open(std::uint64_t records_per_file = 0) {
    return std::make_shared<RecordSet>(
        files_.names(), [this](const std::string& name) { return std::make_unique<CountedFile>(name, count_); },
        RecordSetOptions{.records_per_file = records_per_file, .threads = 2});
  }

  /// Of the second epoch; `count_` is then of that alone.
  void read_epoch(const std::shared_ptr<const RecordSet>& set, Shuffling shuffling, std::uint64_t budget_bytes,
                  std::uint64_t open_blocks = 0) {
    const std::vector<Field> fields = {{.name = "label",
                                        .kind = FeatureKind::kInts,
                                        .stored = ElementType::kInt64,
                                        .type = ElementType::kInt64,
                                        .shape = {}}};
    LoaderOptions options;
    options.sampling = {.seed = 5, .shuffling = shuffling, .open_blocks = open_blocks, .batch_per_rank = 5};
    options.threads = 3;
    options.memory_budget_bytes = budget_bytes;
    Loader loader(set, fields, options);
    std::set<std::int64_t> seen;
    for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
      count_.opened = count_.reads = count_.bytes = 0;
      loader.start_epoch(epoch);
      while (const auto batch = loader.next()) {
        EXPECT_LE(loader.memory_bytes(), budget_bytes);
        for (std::size_t i = 0; i < batch->samples().counted; ++i) {
          std::int64_t label = 0;
          std::memcpy(&label, batch->field(0).data() + i * sizeof label, sizeof label);
          seen.insert(label);
        }
      }
    }
    EXPECT_EQ(seen.size(), samples_);
  }

  static constexpr std::uint64_t kMiB = 1 << 20;
  RecordFiles files_;
  Count count_;
  std::uint64_t stored_bytes_ = 0;
  std::uint64_t samples_ = 0;
};

TEST_F(RecordReads, a_full_shuffle_reads_a_record_at_a_time) {
  write(10, 100, Compression::kNone, 500);
  for (const std::uint64_t records : {0, 100}) {
    const auto set = open(records);
    read_epoch(set, Shuffling::kFull, 4 * kMiB);
    EXPECT_LE(count_.bytes, stored_bytes_);
    EXPECT_EQ(count_.reads, samples_);
    EXPECT_EQ(count_.opened, 0U) << "since the first epoch";
  }
}

TEST_F(RecordReads, where_the_records_of_a_large_file_lie_is_found_out_once) {
  write(3, 300, Compression::kNone, 2000);  // 1.2 MB each.
  for (const Shuffling shuffling : {Shuffling::kFull, Shuffling::kBlocks, Shuffling::kNone}) {
    const auto set = open(300);
    EXPECT_EQ(count_.opened, 0U);
    read_epoch(set, shuffling, 4 * kMiB);
    EXPECT_LE(count_.bytes, stored_bytes_);
    EXPECT_EQ(count_.reads, samples_);
    count_.opened = 0;
  }
}

TEST_F(RecordReads, the_lengths_of_short_records_are_read_many_at_a_time) {
  write(1, 2000, Compression::kNone, 100);
  open();
  EXPECT_LT(count_.reads, 20U);
  EXPECT_LE(count_.bytes, stored_bytes_ + 100);
}

TEST_F(RecordReads, what_is_read_as_a_whole_is_read_once_for_all_threads) {
  for (const Compression compression : {Compression::kNone, Compression::kGzip}) {
    stored_bytes_ = 0;
    RecordFiles others;
    for (int i = 0; i < 12; ++i) {
      others.add(40, compression, 2000);  // 160 KB in memory.
      stored_bytes_ += std::filesystem::file_size(others.names().back());
    }
    samples_ = 480;
    const auto set = std::make_shared<RecordSet>(
        others.names(), [this](const std::string& name) { return std::make_unique<CountedFile>(name, count_); },
        RecordSetOptions{});
    for (const Shuffling shuffling : {Shuffling::kBlocks, Shuffling::kNone}) {
      // Half of it holds the open files, and those that threads read ahead.
      read_epoch(set, shuffling, 4 * kMiB, 4);
      EXPECT_LE(count_.bytes, stored_bytes_ + 12 * 12);
      read_epoch(set, shuffling, 64 * kMiB, 4);
      EXPECT_EQ(count_.bytes, 0U) << "everything is there since the first epoch";
    }
  }
}

TEST_F(RecordReads, a_full_shuffle_of_compressed_files_is_warned_of_where_they_do_not_fit) {
  write(8, 40, Compression::kGzip, 2000);
  const auto counted = open();
  EXPECT_THAT(counted->advice_on_full_shuffle(2 * kMiB), HasSubstr("decompress a file of up to 40 records anew"));
  EXPECT_THAT(counted->advice_on_full_shuffle(4 * kMiB), IsEmpty());
  EXPECT_THAT(open(40)->advice_on_full_shuffle(1000), HasSubstr("shuffle in blocks"));
  count_.opened = 0;
  EXPECT_THAT(open(1)->advice_on_full_shuffle(1000), IsEmpty());
  EXPECT_EQ(count_.opened, 0U);
  read_epoch(counted, Shuffling::kFull, 4 * kMiB);
  EXPECT_EQ(count_.bytes, 0U) << "it all fits";
}

TEST_F(RecordReads, plain_files_cost_nothing_in_any_order) {
  write(8, 40, Compression::kNone, 2000);
  EXPECT_THAT(open()->advice_on_full_shuffle(1000), IsEmpty());
  EXPECT_THAT(open(40)->advice_on_full_shuffle(1000), IsEmpty());
}

TEST_F(RecordReads, a_damaged_file_fails_each_of_its_samples_and_is_decompressed_once) {
  write(2, 20, Compression::kGzip, 2000);
  std::filesystem::resize_file(files_.names()[1], std::filesystem::file_size(files_.names()[1]) / 2);
  const auto set = open(20);
  RecordReader reader(*set, std::make_shared<MemoryBudget>(8 * kMiB));
  StageTimes times;
  for (const std::uint64_t record : {25U, 20U, 39U}) {
    EXPECT_THROW(static_cast<void>(reader.read(record, times)), Error);
  }
  EXPECT_LE(count_.bytes, std::filesystem::file_size(files_.names()[1]) + 12);
  EXPECT_EQ(testing::label_of(reader.read(7, times)), 7);
}

}  // namespace
}  // namespace gyre::data
