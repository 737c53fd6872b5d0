// Decoding row groups is most of the work of reading Parquet files: all threads of a loader must share it, within the
// budget.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/base/thread_annotations.h"
#include "gyre/data/loader.h"
#include "gyre/data/parquet_set.h"
#include "gyre/data/tar_test_support.h"

namespace gyre::data {
namespace {

using namespace std::chrono_literals;

std::string golden(const char* name) { return std::string(GYRE_TEST_DATA "/parquet/") + name + ".parquet"; }

/// Where two threads that read at the same time meet; the first one waits for the second.
class MeetingPlace {
 public:
  void arm() {
    const MutexLock lock(mutex_);
    armed_ = true;
  }
  bool met() const {
    const MutexLock lock(mutex_);
    return met_;
  }
  void pass() {
    const MutexLock lock(mutex_);
    if (!armed_ || met_) return;
    met_ = ++here_ > 1;
    changed_.notify_all();
    const auto patience = SteadyClock::now() + 10s;
    while (!met_ && changed_.wait_until(mutex_, patience)) {
    }
    --here_;
  }

 private:
  mutable Mutex mutex_;
  ConditionVariable changed_;
  bool armed_ GYRE_GUARDED_BY(mutex_) = false;
  bool met_ GYRE_GUARDED_BY(mutex_) = false;
  int here_ GYRE_GUARDED_BY(mutex_) = 0;
};

struct MeetingFile : public testing::MemoryFile {
  MeetingFile(const std::string& name, const std::string& contents, MeetingPlace& readers_meet)
      : testing::MemoryFile(name, contents), meeting(readers_meet) {}
  void read_at(std::uint64_t offset_bytes, std::span<std::byte> into) const override {
    meeting.pass();
    testing::MemoryFile::read_at(offset_bytes, into);
  }
  MeetingPlace& meeting;
};

std::vector<Field> row_number() {
  return {{.name = "int64",
           .kind = FeatureKind::kInts,
           .stored = ElementType::kInt64,
           .type = ElementType::kInt64,
           .shape = {}}};
}

LoaderOptions options_of(int threads, Shuffling shuffling) {
  LoaderOptions options;
  options.sampling.shuffling = shuffling;
  options.sampling.batch_per_rank = 2;
  options.threads = threads;
  return options;
}

/// The values of an epoch, in its order.
std::vector<std::int64_t> values_of(Loader& loader, std::uint64_t epoch) {
  std::vector<std::int64_t> values;
  loader.start_epoch(epoch);
  while (const auto batch = loader.next()) {
    for (std::size_t i = 0; i < batch->samples().counted; ++i) {
      std::int64_t value = 0;
      std::memcpy(&value, batch->field(0).data() + i * sizeof value, sizeof value);
      values.push_back(value);
    }
  }
  return values;
}

TEST(ParquetAhead, a_thread_that_would_wait_for_a_row_group_decodes_the_next_one) {
  const Bytes contents = read_file(golden("none"), 1 << 20);
  for (const Shuffling shuffling : {Shuffling::kNone, Shuffling::kBlocks}) {
    MeetingPlace meeting;
    const auto set = open_parquet({"f"},
                                  [&](const std::string& name) {
                                    return std::make_unique<MeetingFile>(name, std::string(as_text(contents)), meeting);
                                  },
                                  {.columns = {"int64"}});
    Loader loader(set, row_number(), options_of(2, shuffling));
    meeting.arm();
    EXPECT_EQ(values_of(loader, 0).size(), set->count());
    EXPECT_TRUE(meeting.met());
  }
}

// Reading ahead is a courtesy: with little memory it must not cost the row groups that are needed now.
TEST(ParquetAhead, every_budget_that_suffices_gives_the_same_rows) {
  const auto set = open_parquet({golden("snappy"), golden("zstd"), golden("none")}, open_local_file,
                                {.columns = {"int64", "text", "image.bytes"}});
  std::vector<std::int64_t> expected;
  int sufficed = 0;
  for (std::uint64_t budget = 1 << 13; budget < 1 << 21; budget += budget / 2) {
    LoaderOptions options = options_of(4, Shuffling::kBlocks);
    options.memory_budget_bytes = budget;
    try {
      Loader loader(set, row_number(), options);
      for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
        const std::vector<std::int64_t> values = values_of(loader, epoch);
        EXPECT_LE(loader.memory_bytes(), budget);
        if (epoch > 0) continue;
        if (expected.empty()) expected = values;
        EXPECT_EQ(values, expected) << budget;
      }
      ++sufficed;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted) << error.what();
      EXPECT_EQ(sufficed, 0) << "a smaller budget sufficed: " << error.what();
    }
  }
  EXPECT_GT(sufficed, 3);
  EXPECT_EQ(expected.size(), set->count());
}

}  // namespace
}  // namespace gyre::data
