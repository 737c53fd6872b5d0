// Decoding row groups is most of the work of reading Parquet files: all threads of a loader must share it, within the
// budget.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
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

/// Announcements and readings of a file afar, in their order.
struct Far {
  struct Event {
    bool announced = false;
    std::uint64_t offset_bytes = 0;
  };

  void add(const Event& event) {
    const MutexLock lock(mutex);
    events.push_back(event);
  }
  void forget() {
    const MutexLock lock(mutex);
    events.clear();
  }
  bool was_announced(std::uint64_t offset_bytes) const {
    const MutexLock lock(mutex);
    return std::ranges::any_of(
        events, [&](const Event& event) { return event.announced && event.offset_bytes == offset_bytes; });
  }

  mutable Mutex mutex;
  std::vector<Event> events GYRE_GUARDED_BY(mutex);
};

struct FarFile : public testing::MemoryFile {
  FarFile(const std::string& name, const std::string& contents, Far& far)
      : testing::MemoryFile(name, contents), where(far) {}
  void read_at(std::uint64_t offset_bytes, std::span<std::byte> into) const override {
    where.add({.announced = false, .offset_bytes = offset_bytes});
    testing::MemoryFile::read_at(offset_bytes, into);
  }
  void will_read(std::span<const FileRange> ranges) const override {
    for (const FileRange& range : ranges) where.add({.announced = true, .offset_bytes = range.offset_bytes});
  }
  bool is_here(const FileRange& range) const override { return where.was_announced(range.offset_bytes); }
  Far& where;
};

struct FarFolders : public Folders {
  FileKind kind(const std::string& /*name*/) const override { return FileKind::kFile; }
  std::vector<FolderEntry> list(const std::string& /*folder*/) const override { return {}; }
  bool are_far() const override { return true; }
};

// A row group that is asked for when it is needed costs its way to the server each time.
TEST(ParquetAhead, row_groups_afar_are_announced_before_the_one_before_them_is_read) {
  const Bytes contents = read_file(golden("none"), 1 << 20);
  const std::vector<std::uint64_t> begins = {265, 2511, 4789};  // Of the column, in each row group.
  for (const Shuffling shuffling : {Shuffling::kNone, Shuffling::kBlocks}) {
    Far far;
    const auto open = [&](const std::string& name) {
      return std::make_unique<FarFile>(name, std::string(as_text(contents)), far);
    };
    const auto set = open_parquet({"f"}, FileOpener(open, std::make_shared<FarFolders>()), {.columns = {"int64"}});
    LoaderOptions options = options_of(1, shuffling);
    options.read_ahead_bytes = 1 << 20;
    Loader loader(set, row_number(), options);
    far.forget();  // The footer, and the first sample, which has told the loader what samples are like.
    EXPECT_EQ(values_of(loader, 0).size(), set->count());
    const MutexLock lock(far.mutex);
    std::vector<std::size_t> announced;
    std::vector<std::size_t> read;  // In the order of the epoch.
    for (std::size_t at = 0; at < far.events.size(); ++at) {
      const std::uint64_t begin = far.events[at].offset_bytes;
      if (std::ranges::find(begins, begin) == begins.end() || far.events[at].announced) continue;
      read.push_back(at);
      const auto first = std::ranges::find_if(
          far.events, [&](const Far::Event& event) { return event.announced && event.offset_bytes == begin; });
      announced.push_back(static_cast<std::size_t>(first - far.events.begin()));
    }
    ASSERT_EQ(read.size(), begins.size());
    for (std::size_t i = 1; i < read.size(); ++i) EXPECT_LT(announced[i], read[i - 1]);
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
