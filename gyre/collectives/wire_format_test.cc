// Why: a format that halves the bytes between hosts must not cost more than the rounding it promises, nor let the ranks
// end with different bits.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "gyre/base/random.h"
#include "gyre/collectives/internal/links/link_allreduce.h"
#include "gyre/collectives/internal/test_support.h"
#include "gyre/collectives/kernels.h"
#include "gyre/net/frame.h"

namespace gyre::collectives {
namespace {

using testing::Arrangement;
using Values = std::vector<float>;

constexpr WireFormat kFormats[] = {WireFormat::kBfloat16, WireFormat::kFloat16};

DataType type_of(WireFormat wire) { return wire == WireFormat::kFloat16 ? DataType::kFloat16 : DataType::kBfloat16; }

std::vector<Values> reduced(int size, const Arrangement& arrangement, const std::vector<Values>& inputs,
                            const Reduction& reduction) {
  std::vector<Values> outputs = inputs;
  testing::run_ranks(size, arrangement, [&](group::Lane& lane) {
    Values& own = outputs[static_cast<std::size_t>(lane.rank())];
    allreduce(lane, std::as_writable_bytes(std::span(own)), reduction);
  });
  return outputs;
}

std::vector<Values> random_inputs(int size, std::size_t count) {
  std::vector<Values> inputs;
  for (int r = 0; r < size; ++r) {
    Random random(testing::test_seed(), static_cast<std::uint64_t>(r));
    Values& values = inputs.emplace_back(count);
    for (float& value : values) value = random.uniform(-1.0F, 1.0F);
  }
  return inputs;
}

bool same_bits(const Values& a, const Values& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

Bytes as_vector(const Values& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

/// All arrangements in which something travels over links.
std::vector<Arrangement> arrangements(int size) {
  std::vector<Arrangement> found = testing::host_arrangements(size);
  if (size > 1) found.push_back(testing::a_host_each(size));
  return found;
}

class WireFormats : public ::testing::TestWithParam<int> {};

TEST_P(WireFormats, cost_one_rounding_per_hop_and_leave_all_ranks_with_equal_bits) {
  const int size = GetParam();
  for (const Arrangement& arrangement : arrangements(size)) {
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{1001}, std::size_t{70'001}}) {
      const std::vector<Values> inputs = random_inputs(size, count);
      for (const WireFormat wire : kFormats) {
        const auto outputs = reduced(size, arrangement, inputs, {.operation = ReduceOperation::kAverage, .wire = wire});
        const std::string where = fmt::format("{}, {} values, {} ranks, {}; seed {}", name(wire), count, size,
                                              arrangement.name, testing::test_seed());
        for (const Values& output : outputs) ASSERT_TRUE(same_bits(output, outputs[0])) << "ranks differ: " << where;
        Values rounded = outputs[0];
        round_float32(rounded.data(), count, type_of(wire));
        EXPECT_TRUE(same_bits(rounded, outputs[0])) << "not a value of the format: " << where;
        // Of magnitudes that add up to at most `size`, each of at most n + 1 roundings costs half a unit.
        const double unit = wire == WireFormat::kFloat16 ? 0x1p-10 : 0x1p-7;
        const double tolerance = (size + 1) * unit / 2;
        for (std::size_t i = 0; i < count; ++i) {
          double sum = 0;
          for (const Values& input : inputs) sum += static_cast<double>(input[i]);
          ASSERT_NEAR(static_cast<double>(outputs[0][i]), sum / size, tolerance) << i << ": " << where;
        }
      }
    }
  }
}

TEST_P(WireFormats, lose_nothing_where_all_partial_sums_are_values_of_the_format) {
  const int size = GetParam();
  for (const Arrangement& arrangement : arrangements(size)) {
    for (const std::size_t count : {std::size_t{100}, std::size_t{50'000}}) {
      std::vector<Values> inputs(static_cast<std::size_t>(size), Values(count));
      for (Values& values : inputs) {
        for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i % 17) - 8.0F;
      }
      for (const WireFormat wire : kFormats) {
        for (const ReduceOperation operation : {ReduceOperation::kSum, ReduceOperation::kMin, ReduceOperation::kMax}) {
          const auto outputs = reduced(size, arrangement, inputs, {.operation = operation, .wire = wire});
          const auto native = reduced(size, arrangement, inputs, {.operation = operation});
          EXPECT_TRUE(same_bits(outputs[0], native[0]))
              << name(wire) << ' ' << name(operation) << ' ' << size << ' ' << arrangement.name;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, WireFormats, ::testing::Values(2, 3, 5, 8));

TEST(WireFormat, does_nothing_where_ranks_share_memory_or_elements_are_of_another_type) {
  const std::vector<Values> inputs = random_inputs(4, 60'000);
  const Reduction encoded{.wire = WireFormat::kBfloat16};
  EXPECT_TRUE(
      same_bits(reduced(4, testing::one_host(4), inputs, encoded)[0], reduced(4, testing::one_host(4), inputs, {})[0]));
  testing::run_ranks(2, testing::a_host_each(2), [](group::Lane& lane) {
    std::vector<double> values(40'000, 1.0 + 0x1p-40);
    allreduce(lane, std::as_writable_bytes(std::span(values)),
              {.type = DataType::kFloat64, .wire = WireFormat::kFloat16});
    EXPECT_EQ(std::count(values.begin(), values.end(), 2.0 + 0x1p-39), 40'000);
  });
}

TEST(WireFormat, halves_what_a_ring_and_a_doubling_send) {
  testing::run_ranks(2, testing::a_host_each(2), [](group::Lane& lane) {
    const auto sent_by = [&](std::size_t bytes, WireFormat wire) {
      Bytes buffer(bytes);
      const std::uint64_t before = lane.counters().bytes_sent;
      allreduce(lane, buffer, {.wire = wire});
      return lane.counters().bytes_sent - before;
    };
    EXPECT_EQ(sent_by(1000, WireFormat::kFloat16), 500 + net::kFrameHeaderBytes);
    constexpr std::size_t kBytes = std::size_t{1} << 20;
    const std::uint64_t headers = 2 * (kBytes / 2 / internal::ring_piece_bytes(kBytes / 2)) * net::kFrameHeaderBytes;
    EXPECT_EQ(sent_by(kBytes, WireFormat::kBfloat16), kBytes / 2 + headers);
    EXPECT_EQ(sent_by(kBytes, WireFormat::kNative), kBytes + headers);
  });
}

TEST(WireFormat, of_float16_lets_what_is_too_large_become_infinite_on_all_ranks) {
  const std::vector<Values> inputs(3, Values(50'000, 40'000.0F));
  for (const Values& output : reduced(3, testing::a_host_each(3), inputs, {.wire = WireFormat::kFloat16})) {
    EXPECT_TRUE(std::all_of(output.begin(), output.end(), [](float value) { return std::isinf(value); }));
  }
  for (const Values& output : reduced(3, testing::a_host_each(3), inputs, {.wire = WireFormat::kBfloat16})) {
    EXPECT_TRUE(std::all_of(output.begin(), output.end(), [](float value) { return std::isfinite(value); }));
  }
}

TEST(WireFormat, gives_the_same_bits_in_the_arena) {
  const int size = 5;
  const std::vector<Values> inputs = random_inputs(size, 64 * 1000);
  for (const Arrangement& arrangement : arrangements(size)) {
    for (const std::size_t count : {std::size_t{1600}, inputs[0].size()}) {
      const Reduction reduction{.operation = ReduceOperation::kAverage, .wire = WireFormat::kBfloat16};
      std::vector<Values> shorter = inputs;
      for (Values& values : shorter) values.resize(count);
      const auto expected = reduced(size, arrangement, shorter, reduction);
      testing::run_ranks(
          size, arrangement,
          [&](group::Lane& lane) {
            const Bytes own = as_vector(shorter[static_cast<std::size_t>(lane.rank())]);
            std::copy(own.begin(), own.end(), arena(lane).begin());
            allreduce_in_arena(lane, 0, own.size(), reduction);
            EXPECT_EQ(std::memcmp(arena(lane).data(), expected[0].data(), own.size()), 0) << arrangement.name;
          },
          std::size_t{1} << 20);
    }
  }
}

}  // namespace
}  // namespace gyre::collectives
