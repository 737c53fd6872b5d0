// A gap or an overlap between chunks would lose or double gradients without any message.
#include "gyre/collectives/schedule/chunks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

namespace gyre::collectives {
namespace {

using Ranges = std::vector<ElementRange>;

TEST(chunks, the_examples_of_the_comment_hold) {
  EXPECT_EQ(even_chunks(10, 4), (Ranges{{0, 3}, {3, 3}, {6, 2}, {8, 2}}));
  EXPECT_EQ(even_chunks(10, 4, 4), (Ranges{{0, 4}, {4, 4}, {8, 2}, {10, 0}}));
}

TEST(chunks, every_element_is_in_exactly_one_chunk_and_chunks_differ_by_one_unit) {
  for (const std::size_t granularity : {1u, 3u, 16u}) {
    for (int chunks = 1; chunks <= 17; ++chunks) {
      for (std::size_t count = 0; count <= 200; ++count) {
        const Ranges ranges = even_chunks(count, chunks, granularity);
        ASSERT_EQ(ranges.size(), static_cast<std::size_t>(chunks));
        std::size_t next = 0;
        std::size_t most_units = 0;
        std::size_t fewest_units = std::numeric_limits<std::size_t>::max();
        for (const ElementRange& range : ranges) {
          ASSERT_EQ(range.begin, next);
          ASSERT_TRUE(range.end() == count || range.end() % granularity == 0);
          const std::size_t units = (range.count + granularity - 1) / granularity;
          ASSERT_LE(units, fewest_units) << "a later chunk is larger";
          most_units = std::max(most_units, units);
          fewest_units = std::min(fewest_units, units);
          next = range.end();
        }
        ASSERT_EQ(next, count);
        ASSERT_LE(most_units - fewest_units, 1u);
      }
    }
  }
}

TEST(chunks, a_buffer_of_many_gigabytes_splits_without_overflow) {
  const std::size_t count = (std::size_t{1} << 62) + 5;
  const Ranges ranges = even_chunks(count, 7, 16);
  EXPECT_EQ(ranges.back().end(), count);
  EXPECT_EQ(ranges[3].begin % 16, 0u);
}

TEST(chunks, a_cache_line_holds_64_bytes_of_every_type) {
  for (const DataType type : all_data_types()) EXPECT_EQ(elements_per_cache_line(type) * size_of(type), 64u);
}

TEST(chunks, ragged_chunks_lie_end_to_end) {
  const std::vector<std::size_t> counts{3, 0, 5, 0};
  EXPECT_EQ(ragged_chunks(counts), (Ranges{{0, 3}, {3, 0}, {3, 5}, {8, 0}}));
  EXPECT_TRUE(ragged_chunks({}).empty());
}

}  // namespace
}  // namespace gyre::collectives
