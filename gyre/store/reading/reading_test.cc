// What is read from afar has to be what the source holds, fetched once, however it was announced.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/base/random.h"
#include "gyre/store/reading/data_files.h"
#include "gyre/store/reading/listed_tree.h"
#include "gyre/store/reading/object_ranges.h"
#include "gyre/store/reading/read_ahead.h"

namespace gyre::store {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

ListedTree tree_of(const std::vector<std::string>& names) {
  std::vector<Object> objects;
  for (const std::string& name : names) objects.push_back({.name = name, .size_bytes = 1});
  return ListedTree(std::move(objects));
}

std::vector<std::string> names_in(const ListedTree& tree, const std::string& folder) {
  std::vector<std::string> names;
  for (const data::FolderEntry& entry : tree.list(folder)) {
    names.push_back(entry.name + (entry.kind == data::FileKind::kFolder ? "/" : ""));
  }
  return names;
}

TEST(ListedTree, names_with_slashes_are_folders) {
  const ListedTree tree = tree_of({"b/2", "a", "b/c/3", "b.txt", "b0", "b/c/4", "b-1/x"});
  EXPECT_THAT(names_in(tree, ""), UnorderedElementsAre("a", "b/", "b.txt", "b0", "b-1/"));
  EXPECT_THAT(names_in(tree, "b"), ElementsAre("2", "c/"));
  EXPECT_THAT(names_in(tree, "b/c"), ElementsAre("3", "4"));
  EXPECT_TRUE(names_in(tree, "a").empty());
  EXPECT_EQ(tree.kind("b"), data::FileKind::kFolder);
  EXPECT_EQ(tree.kind("b/c/4"), data::FileKind::kFile);
  EXPECT_EQ(tree.kind("b/"), data::FileKind::kMissing);
  EXPECT_EQ(tree.kind("c"), data::FileKind::kMissing);
  ASSERT_NE(tree.find("b/2"), nullptr);
  EXPECT_EQ(tree.find("b/c"), nullptr);
}

// A URL that is cut off at a '#' or '?' names another file.
TEST(DataFiles, each_character_of_a_name_is_asked_for) {
  std::vector<std::string> asked;
  const DataFiles files([&](const std::string& given) -> std::unique_ptr<Source> {
    asked.push_back(given);
    throw Error(ErrorCode::kNotFound, "it is not there");
  });
  const auto open = [&](const std::string& name) { files.opener()(files.add(name)); };
  for (const std::string name : {"s3://b/a#1", "az://c/a%20b#1", "store:///s/j/a#1"}) {
    EXPECT_THROW(open(name), Error);
    EXPECT_EQ(asked.back(), name);
  }
  EXPECT_EQ(files.add("s3://b/a#?"), "s3://b/a#?");
  EXPECT_EQ(files.add("file:///a%20b#1"), "/a b#1");
  EXPECT_THROW(files.add("https://host/a#1"), Error);
}

/// Gives bytes that their positions determine, at most 1,000 at a time; fails now and then.
class NumberSource : public Source {
 public:
  const std::string& name() const override { return name_; }
  std::vector<Object> list(const ReadLimits&, std::chrono::milliseconds) override { return {}; }
  std::unique_ptr<ObjectReader> reader(const ReadLimits&) const override { return std::make_unique<Reader>(*this); }

  static std::byte at(std::uint64_t offset) { return static_cast<std::byte>((offset * 2654435761U) >> 7U); }

  mutable std::atomic<std::uint64_t> sent_bytes{0};
  mutable std::atomic<bool> broken{false};

 private:
  class Reader : public ObjectReader {
   public:
    explicit Reader(const NumberSource& source) : source_(source) {}
    ReadOutcome read(const Object&, std::uint64_t offset_bytes, std::span<std::byte> into) override {
      if (source_.broken) throw Error(ErrorCode::kCorruptData, "it has changed since it was listed");
      const std::size_t bytes = std::min<std::size_t>(into.size(), 1'000);
      for (std::size_t i = 0; i < bytes; ++i) into[i] = at(offset_bytes + i);
      source_.sent_bytes += bytes;
      return {.bytes = bytes};
    }

   private:
    const NumberSource& source_;
  };

  std::string name_ = "numbers";
};

class ReadAheadTest : public ::testing::Test {
 protected:
  /// As a file does it.
  void read(ReadAhead& ahead, std::uint64_t offset, std::uint64_t size) {
    Bytes bytes(size);
    for (std::size_t done = 0; done < size;) {
      const auto rest = std::span(bytes).subspan(done);
      const ReadAhead::Taken taken = ahead.take(object_, offset + done, rest);
      std::size_t count = taken.bytes;
      if (count == 0) {
        count = static_cast<std::size_t>(std::min<std::uint64_t>(rest.size(), taken.until - offset - done));
        ASSERT_GT(count, 0U);
        ranges_.read(object_, offset + done, rest.first(count));
      }
      done += count;
    }
    for (std::uint64_t i = 0; i < size; ++i) ASSERT_EQ(bytes[i], NumberSource::at(offset + i)) << offset + i;
  }

  NumberSource source_;
  ObjectRanges ranges_{source_, {}, std::chrono::seconds(10)};
  Object object_{.name = "object", .size_bytes = 1 << 20};
  ReadAhead::Place place_{.object = &object_, .ranges = &ranges_};
};

TEST_F(ReadAheadTest, what_was_announced_is_fetched_once_and_forgotten) {
  ReadAhead ahead(3, 1 << 22);
  std::vector<data::FileRange> parts;
  for (std::uint64_t i = 0; i < 64; ++i) parts.push_back({.offset_bytes = i * 16'384, .size_bytes = 16'384});
  ahead.expect(place_, parts);
  ahead.expect(place_, parts);  // Again: nothing new.
  while (!ahead.holds(object_, {.offset_bytes = 1'000, .size_bytes = 900'000})) std::this_thread::yield();
  for (const data::FileRange& part : parts) read(ahead, part.offset_bytes, part.size_bytes);
  EXPECT_EQ(source_.sent_bytes, object_.size_bytes);
  EXPECT_EQ(ahead.used_bytes(), 0U);
  EXPECT_FALSE(ahead.holds(object_, {.offset_bytes = 1'000, .size_bytes = 1}));
}

TEST_F(ReadAheadTest, any_readings_and_announcements_give_the_right_bytes) {
  const std::uint64_t seed = 20261126;
  Random random(seed);
  ReadAhead ahead(4, 100'000);  // Less than is announced at a time.
  for (int i = 0; i < 2'000; ++i) {
    const std::uint64_t offset = random.below(object_.size_bytes);
    const std::uint64_t size = 1 + random.below(std::min<std::uint64_t>(20'000, object_.size_bytes - offset));
    if (random.below(2) == 0) {
      const data::FileRange part{.offset_bytes = offset, .size_bytes = size};
      ahead.expect(place_, {&part, 1});
    } else {
      read(ahead, offset, size);
    }
    ASSERT_LE(ahead.used_bytes(), 100'000U);
  }
}

TEST_F(ReadAheadTest, what_nobody_reads_makes_room) {
  ReadAhead ahead(2, 50'000);
  const data::FileRange unread{.offset_bytes = 0, .size_bytes = 200'000};
  ahead.expect(place_, {&unread, 1});
  for (int round = 0; round < 3; ++round) {
    for (std::uint64_t offset = 500'000; offset < 900'000; offset += 10'000) {
      const data::FileRange part{.offset_bytes = offset, .size_bytes = 10'000};
      ahead.expect(place_, {&part, 1});
    }
    for (std::uint64_t offset = 500'000; offset < 900'000; offset += 10'000) read(ahead, offset, 10'000);
  }
}

TEST_F(ReadAheadTest, an_error_of_the_source_is_the_readers) {
  source_.broken = true;
  ReadAhead ahead(2, 1 << 20);
  const data::FileRange part{.offset_bytes = 0, .size_bytes = 10'000};
  ahead.expect(place_, {&part, 1});
  Bytes bytes(100);
  EXPECT_EQ(ahead.take(object_, 0, bytes).bytes, 0U);
  EXPECT_THROW(ranges_.read(object_, 0, bytes), Error);
  EXPECT_EQ(ahead.used_bytes(), 0U);
}

/// A source that is not there, for the reason that its server gives.
class MissingSource : public Source {
 public:
  explicit MissingSource(std::string reason) : reason_(std::move(reason)) {}
  const std::string& name() const override { return reason_; }
  std::vector<Object> list(const ReadLimits&, std::chrono::milliseconds) override {
    throw Error(ErrorCode::kNotFound, reason_);
  }
  std::unique_ptr<ObjectReader> reader(const ReadLimits&) const override { return nullptr; }

 private:
  std::string reason_;
};

TEST(DataFiles, a_missing_bucket_is_no_missing_file) {
  // Else a typing error in its name reads as if the data were not there.
  const auto kind = [](const std::string& reason) {
    const DataFiles files([&](const std::string&) { return std::make_unique<MissingSource>(reason); });
    return files.opener().folders().kind("s3://buckt/x");
  };
  EXPECT_EQ(kind("the server does not have it (404)"), data::FileKind::kMissing);
  EXPECT_THAT([&] { kind("the server does not have it (404 NoSuchBucket)"); },
              ::testing::ThrowsMessage<Error>(::testing::HasSubstr("NoSuchBucket")));
}

}  // namespace
}  // namespace gyre::store
