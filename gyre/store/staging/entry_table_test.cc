// A data set of a million objects must not take a gigabyte on every node: what an entry gives back, and what it takes.

#include "gyre/store/staging/entry_table.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <string>
#include <vector>

#include "gyre/base/random.h"
#include "gyre/store/staging/manifest.h"

namespace gyre::store {
namespace {

std::string some_text(Random& random, std::size_t most) {
  std::string text;
  for (std::size_t left = random.below(most + 1); left > 0; --left) text += static_cast<char>('a' + random.below(3));
  return text;
}

ManifestEntry some_entry(Random& random) {
  ManifestEntry entry{.source = static_cast<std::size_t>(random.below(300))};
  entry.object = {.name = some_text(random, 200),
                  .size_bytes = random.next_u64() >> random.below(64),
                  .version = some_text(random, 20),
                  .encoding = some_text(random, 3)};
  if (random.below(2) == 0) entry.object.md5.emplace().fill(static_cast<std::byte>(random.below(256)));
  entry.target = random.below(2) == 0 ? entry.object.name : some_text(random, 200);
  entry.compression = static_cast<data::Compression>(random.below(3));
  return entry;
}

TEST(EntryTable, GivesBackWhatWasAdded) {
  Random random(1);
  for (const std::size_t count : {0U, 1U, 15U, 16U, 17U, 200U}) {
    std::vector<ManifestEntry> entries;
    for (std::size_t i = 0; i < count; ++i) entries.push_back(some_entry(random));
    std::ranges::sort(entries, {}, &ManifestEntry::target);
    EntryTable table;
    for (const ManifestEntry& entry : entries) table.push_back(entry);
    table.shrink_to_fit();
    ASSERT_EQ(table.size(), count);
    EXPECT_EQ(table.empty(), count == 0);
    std::size_t number = 0;
    for (const ManifestEntry& entry : table) EXPECT_EQ(entry, entries[number++]);
    EXPECT_EQ(number, count);
    for (std::size_t i = 0; i < count; ++i) EXPECT_EQ(table[i], entries[i]) << i;
    for (int i = 0; i < 300; ++i) {
      const bool known = count > 0 && random.below(2) == 0;
      const std::string target = known ? entries[random.below(count)].target : some_text(random, 200);
      const auto found = std::ranges::lower_bound(entries, target, {}, &ManifestEntry::target);
      EXPECT_EQ(table.lower_bound(target), static_cast<std::size_t>(found - entries.begin())) << target;
    }
  }
}

std::size_t allocated_bytes() {
  const struct mallinfo2 now = ::mallinfo2();
  return now.uordblks + now.hblkhd;
}

/// False under sanitizers, whose memory malloc knows nothing of.
bool malloc_is_measured() {
  const std::size_t before = allocated_bytes();
  const std::vector<char> memory(1 << 20);
  return allocated_bytes() >= before + memory.size();
}

/// As Azure lists CosmoFlow's files, with everything that a listing may have.
std::vector<Object> a_million_objects() {
  Random random(2);
  std::vector<Object> objects;
  for (int i = 0; i < 1'000'000; ++i) {
    Object object{.name = fmt::format("train/univ_ics_2019-03_a{:08}/univ_ics_2019-03_a{:08}_{:03}.tfrecord.gz",
                                      10'000'000 + i / 64, 10'000'000 + i / 64, i % 64),
                  .size_bytes = 2'800'000 + random.below(100'000),
                  .version = fmt::format("\"0x8D9{:012X}\"", random.next_u64() >> 16),
                  .encoding = "gzip"};
    object.md5.emplace().fill(static_cast<std::byte>(i));
    objects.push_back(std::move(object));
  }
  return objects;
}

TEST(EntryTable, TakesAtMost128BytesForEachOfAMillionObjects) {
  const std::size_t before = allocated_bytes();
  Manifest manifest = make_manifest({{.source = "there", .objects = a_million_objects()}}, Inflation::kNone);
  const double each = static_cast<double>(allocated_bytes() - before) / 1e6;
  RecordProperty("bytes_per_object", fmt::format("{:.1f}", each));
  if (malloc_is_measured()) {
    EXPECT_LE(each, 128);
    EXPECT_GT(each, 32) << "an ETag and an MD5 of random bytes take as much";
  }
  EXPECT_EQ(manifest.entries.size(), 1'000'000U);
  const std::string name = "train/univ_ics_2019-03_a10015624/univ_ics_2019-03_a10015624_063.tfrecord.gz";
  EXPECT_EQ(manifest.entries[999'999].object.name, name);
  EXPECT_EQ(manifest.entries.lower_bound(name), 999'999U);
}

}  // namespace
}  // namespace gyre::store
