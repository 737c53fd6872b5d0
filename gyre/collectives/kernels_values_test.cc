// What the loops over memory promise about particular values: NaN, zeros, ties, overflow, averages, conversions.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "gyre/base/floating_point.h"
#include "gyre/base/random.h"
#include "gyre/collectives/internal/kernels/kernels_test_support.h"
#include "gyre/collectives/kernels.h"

namespace gyre::collectives {
namespace {

using Buffer = std::vector<std::byte>;

template <typename T>
std::vector<T> reduced(const std::vector<std::vector<T>>& sources, DataType type, ReduceOperation operation,
                       const Scaling& scaling = {}) {
  std::vector<const std::byte*> pointers;
  for (const auto& source : sources) pointers.push_back(reinterpret_cast<const std::byte*>(source.data()));
  std::vector<T> result(sources[0].size());
  reduce(reinterpret_cast<std::byte*>(result.data()), pointers, result.size(), type, operation, scaling);
  return result;
}

TEST(kernel_values, min_and_max_hand_a_nan_on_and_take_minus_zero_for_the_lesser_one) {
  for_each_instruction_set([] {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    // Long enough for whole vectors and a tail.
    for (const std::size_t count : {1u, 40u, 67u}) {
      const std::vector<float> numbers(count, 1.0f);
      const std::vector<float> nans(count, nan);
      for (const ReduceOperation operation : {ReduceOperation::kMin, ReduceOperation::kMax}) {
        for (const float value : reduced<float>({nans, numbers, numbers}, DataType::kFloat32, operation)) {
          EXPECT_TRUE(std::isnan(value));
        }
        for (const float value : reduced<float>({numbers, numbers, nans}, DataType::kFloat32, operation)) {
          EXPECT_TRUE(std::isnan(value));
        }
        const std::vector<double> minus(count, -0.0);
        const std::vector<double> plus(count, 0.0);
        const bool negative = operation == ReduceOperation::kMin;
        for (const auto& sources : {std::vector{minus, plus}, std::vector{plus, minus}}) {
          for (const double value : reduced<double>(sources, DataType::kFloat64, operation)) {
            EXPECT_EQ(std::signbit(value), negative);
          }
        }
      }
    }
  });
}

TEST(kernel_values, sums_of_16_bit_floats_are_rounded_once_at_the_end) {
  for_each_instruction_set([] {
    // 256 + 1 is a tie that rounds back to 256 in bfloat16; three ones together do not vanish. 2048 likewise in
    // float16.
    const std::vector<std::uint16_t> large(37, bfloat16_bits(256.0f));
    const std::vector<std::uint16_t> one(37, bfloat16_bits(1.0f));
    const auto brain = reduced<std::uint16_t>({large, one, one, one}, DataType::kBfloat16, ReduceOperation::kSum);
    for (const std::uint16_t bits : brain) EXPECT_EQ(bfloat16_value(bits), 260.0f);
    const std::vector<std::uint16_t> larger(37, float16_bits(2048.0f));
    const std::vector<std::uint16_t> half_one(37, float16_bits(1.0f));
    const auto half = reduced<std::uint16_t>({larger, half_one, half_one}, DataType::kFloat16, ReduceOperation::kSum);
    for (const std::uint16_t bits : half) EXPECT_EQ(float16_value(bits), 2050.0f);
    // A sum beyond float16's range that the average brings back.
    const std::vector<std::uint16_t> huge(37, float16_bits(60000.0f));
    const auto mean = reduced<std::uint16_t>({huge, huge}, DataType::kFloat16, ReduceOperation::kSum, {.factor = 0.5});
    for (const std::uint16_t bits : mean) EXPECT_EQ(bits, float16_bits(60000.0f));
  });
}

TEST(kernel_values, floats_are_added_strictly_in_the_order_of_the_sources) {
  const std::vector<float> large(50, 16777216.0f);  // 2^24: one more is lost, two more are not.
  const std::vector<float> one(50, 1.0f);
  EXPECT_EQ(reduced<float>({large, one, one}, DataType::kFloat32, ReduceOperation::kSum)[49], 16777216.0f);
  EXPECT_EQ(reduced<float>({one, one, large}, DataType::kFloat32, ReduceOperation::kSum)[49], 16777218.0f);
}

TEST(kernel_values, an_average_of_integers_is_exact_and_truncates_toward_zero) {
  for (int ranks = 1; ranks <= 300; ++ranks) {
    const std::vector<std::vector<std::int8_t>> same(ranks, std::vector<std::int8_t>{100, -100, 1, -1});
    const std::vector<std::int8_t> expected{100, -100, 1, -1};
    EXPECT_EQ(reduced(same, DataType::kInt8, ReduceOperation::kSum, {.factor = 1.0 / ranks}), expected)
        << ranks << " ranks";
  }
  const std::vector<std::int64_t> mean =
      reduced<std::int64_t>({{-3, 3, (std::int64_t{1} << 61) + 1}, {-2, 2, (std::int64_t{1} << 61) + 1}},
                            DataType::kInt64, ReduceOperation::kSum, {.factor = 0.5});
  EXPECT_EQ(mean, (std::vector<std::int64_t>{-2, 2, (std::int64_t{1} << 61) + 1}));
}

TEST(kernel_values, an_average_of_equal_floats_is_that_number) {
  // Wherever their sum is exact. Multiplied by 1/n rounded to float32, 137 of these came out wrong.
  for (int ranks = 1; ranks <= 1024; ++ranks) {
    const float value = 3.0F;
    const std::vector<std::vector<float>> same(static_cast<std::size_t>(ranks), std::vector<float>(3, value));
    const Scaling scaling = make_scaling(1.0, 1.0, ranks);
    EXPECT_EQ(reduced(same, DataType::kFloat32, ReduceOperation::kSum, scaling), same[0]) << ranks << " ranks";
  }
}

TEST(kernel_values, a_result_is_divided_where_that_rounds_once_and_multiplied_otherwise) {
  EXPECT_EQ(make_scaling(1.0, 1.0, 1), (Scaling{}));
  EXPECT_EQ(make_scaling(0.25, 1.0, 6), (Scaling{.prescale = 0.25, .divisor = 6.0}));
  EXPECT_EQ(make_scaling(1.0, 6.0, 6), (Scaling{}));
  EXPECT_EQ(make_scaling(1.0, 4.0, 6), (Scaling{.divisor = 1.5}));
  EXPECT_EQ(make_scaling(1.0, 6.0, 2), (Scaling{.factor = 3.0}));
  EXPECT_EQ(make_scaling(1.0, 0.1, 1), (Scaling{.factor = 0.1}));
  EXPECT_EQ(make_scaling(1.0, 0.1, 3), (Scaling{.factor = 0.1 / 3}));
  EXPECT_EQ(make_scaling(1.0, 0.0, 3), (Scaling{.factor = 0.0}));
  EXPECT_EQ(make_scaling(1.0, 1.0, 16'777'217), (Scaling{.factor = 1.0 / 16'777'217}));  // float32 does not hold it.
}

TEST(kernel_values, a_prescale_keeps_a_sum_from_overflowing) {
  const std::vector<float> large(19, 3e38F);
  EXPECT_EQ(reduced<float>({large, large}, DataType::kFloat32, ReduceOperation::kSum, {.prescale = 0.25}),
            std::vector<float>(19, 1.5e38F));
}

TEST(kernel_values, a_scaled_integer_that_does_not_fit_becomes_the_nearest_one_that_does) {
  using Limits = std::numeric_limits<std::int64_t>;
  EXPECT_EQ(reduced<std::uint8_t>({{200, 3, 0}}, DataType::kUint8, ReduceOperation::kSum, {.factor = 2.5}),
            (std::vector<std::uint8_t>{255, 7, 0}));
  EXPECT_EQ(reduced<std::uint8_t>({{200, 3, 0}}, DataType::kUint8, ReduceOperation::kSum, {.factor = -1.0}),
            (std::vector<std::uint8_t>{0, 0, 0}));
  EXPECT_EQ(reduced<std::int64_t>({{Limits::max(), Limits::min(), -7}}, DataType::kInt64, ReduceOperation::kSum,
                                  {.factor = 1e9}),
            (std::vector<std::int64_t>{Limits::max(), Limits::min(), -7'000'000'000}));
}

TEST(kernel_values, a_hop_of_a_ring_puts_what_arrived_first) {
  // Seen by two NaN, of which a sum keeps the first.
  std::vector<double> own{std::nan("1"), 2.0};
  const std::vector<double> arrived{std::nan("2"), 2.0};
  accumulate(reinterpret_cast<std::byte*>(own.data()), reinterpret_cast<const std::byte*>(arrived.data()), 2,
             DataType::kFloat64, ReduceOperation::kSum, {.factor = 0.5});
  EXPECT_EQ(std::bit_cast<std::uint64_t>(own[0]), std::bit_cast<std::uint64_t>(arrived[0]));
  EXPECT_EQ(own[1], 2.0);
}

TEST(kernel_values, scaling_in_place_scales_floats_and_integers) {
  std::vector<float> floats(19, 3.0f);
  scale_in_place(reinterpret_cast<std::byte*>(floats.data()), floats.size(), DataType::kFloat32, {.factor = 0.25});
  EXPECT_EQ(floats, std::vector<float>(19, 0.75f));
  std::vector<std::int32_t> integers{7, -7};
  scale_in_place(reinterpret_cast<std::byte*>(integers.data()), integers.size(), DataType::kInt32, {.factor = 1.5});
  EXPECT_EQ(integers, (std::vector<std::int32_t>{10, -10}));
}

TEST(kernel_values, an_empty_buffer_needs_no_memory) {
  const std::array<const std::byte*, 2> sources{nullptr, nullptr};
  for (const DataType type : all_data_types()) reduce(nullptr, sources, 0, type, ReduceOperation::kSum);
  reduce(nullptr, sources, 0, DataType::kInt32, ReduceOperation::kSum, {.factor = 0.5});
  copy_streaming(nullptr, nullptr, 0);
  narrow_float32(nullptr, nullptr, 0, DataType::kFloat16);
  widen_to_float32(nullptr, nullptr, 0, DataType::kBfloat16);
}

TEST(kernel_values, an_average_is_the_callers_to_fold_into_the_scale) {
  std::byte value{};
  const std::byte* source = &value;
  EXPECT_DEATH(reduce(&value, {&source, 1}, 1, DataType::kUint8, ReduceOperation::kAverage), "kAverage");
}

TEST(kernel_values, every_16_bit_float_widens_to_its_value_and_narrows_back_to_itself) {
  for_each_instruction_set([] {
    std::vector<std::uint16_t> all(65536);
    for (std::size_t bits = 0; bits < all.size(); ++bits) all[bits] = static_cast<std::uint16_t>(bits);
    for (const DataType half : {DataType::kFloat16, DataType::kBfloat16}) {
      std::vector<float> wide(all.size());
      std::vector<std::uint16_t> back(all.size());
      widen_to_float32(wide.data(), all.data(), all.size(), half);
      narrow_float32(back.data(), wide.data(), all.size(), half);
      for (const std::uint16_t bits : all) {
        const float expected = half == DataType::kFloat16 ? float16_value(bits) : bfloat16_value(bits);
        if (std::isnan(expected)) {
          ASSERT_TRUE(std::isnan(wide[bits])) << bits;
          const float again = half == DataType::kFloat16 ? float16_value(back[bits]) : bfloat16_value(back[bits]);
          ASSERT_TRUE(std::isnan(again)) << bits;
          continue;
        }
        ASSERT_EQ(std::bit_cast<std::uint32_t>(wide[bits]), std::bit_cast<std::uint32_t>(expected)) << bits;
        ASSERT_EQ(back[bits], bits);
      }
    }
  });
}

TEST(kernel_values, narrowing_rounds_to_nearest_even_over_the_whole_range_of_float32) {
  for_each_instruction_set([] {
    Random random(kSeed, 300);
    std::vector<float> values;
    for (int i = 0; i < 200'000; ++i) {
      // Any bits; bits near a tie of bfloat16; magnitudes of float16, its subnormals and its overflow, near its ties.
      const std::uint32_t bits = random.next_u32();
      values.push_back(std::bit_cast<float>(bits));
      values.push_back(std::bit_cast<float>((bits & 0xffff'0000) | (0x7fff + static_cast<std::uint32_t>(i % 3))));
      const std::uint32_t exponent = 100 + bits % 46;
      const std::uint32_t near_tie =
          (bits & 0x807f'e000) | (exponent << 23) | (0x0fff + static_cast<std::uint32_t>(i % 3));
      values.push_back(std::bit_cast<float>(near_tie));
    }
    for (const DataType half : {DataType::kFloat16, DataType::kBfloat16}) {
      std::vector<std::uint16_t> narrowed(values.size());
      narrow_float32(narrowed.data(), values.data(), values.size(), half);
      for (std::size_t i = 0; i < values.size(); ++i) {
        const bool is_half = half == DataType::kFloat16;
        if (std::isnan(values[i])) {
          ASSERT_TRUE(std::isnan(is_half ? float16_value(narrowed[i]) : bfloat16_value(narrowed[i])));
          continue;
        }
        ASSERT_EQ(narrowed[i], is_half ? float16_bits(values[i]) : bfloat16_bits(values[i]))
            << fmt::format("{} of {:a}, seed {}", name(half), values[i], kSeed);
      }
    }
  });
}

TEST(kernel_values, rounding_is_narrowing_and_widening_again) {
  Random random(kSeed, 310);
  std::vector<float> values(1003);
  for (float& value : values) value = std::bit_cast<float>(random.next_u32());
  for_each_instruction_set([&] {
    for (const DataType half : {DataType::kFloat16, DataType::kBfloat16}) {
      for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{7}, values.size()}) {
        std::vector<std::uint16_t> narrowed(count);
        std::vector<float> expected(count);
        narrow_float32(narrowed.data(), values.data(), count, half);
        widen_to_float32(expected.data(), narrowed.data(), count, half);
        std::vector<float> rounded(values);
        round_float32(rounded.data(), count, half);
        ASSERT_TRUE(count == 0 || std::memcmp(rounded.data(), expected.data(), count * sizeof(float)) == 0);
        ASSERT_TRUE(
            std::memcmp(rounded.data() + count, values.data() + count, (values.size() - count) * sizeof(float)) == 0);
      }
    }
  });
}

TEST(kernel_values, what_arrives_narrowed_is_accumulated_as_if_it_had_been_widened_before) {
  Random random(kSeed, 320);
  std::vector<float> own(1003);
  std::vector<float> sent(own.size());
  for (float& value : own) value = random.uniform(-2.0F, 2.0F);
  for (float& value : sent) value = random.uniform(-2.0F, 2.0F);
  for_each_instruction_set([&] {
    for (const DataType half : {DataType::kFloat16, DataType::kBfloat16}) {
      std::vector<std::uint16_t> narrowed(sent.size());
      std::vector<float> widened(sent.size());
      narrow_float32(narrowed.data(), sent.data(), sent.size(), half);
      widen_to_float32(widened.data(), narrowed.data(), sent.size(), half);
      for (const ReduceOperation operation : all_reduce_operations()) {
        if (operation == ReduceOperation::kAverage) continue;
        for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{9}, own.size()}) {
          std::vector<float> expected(own);
          accumulate(reinterpret_cast<std::byte*>(expected.data()), reinterpret_cast<const std::byte*>(widened.data()),
                     count, DataType::kFloat32, operation, {.factor = 0.3});
          std::vector<float> result(own);
          accumulate_narrowed(result.data(), narrowed.data(), count, half, operation, {.factor = 0.3});
          ASSERT_TRUE(std::memcmp(result.data(), expected.data(), own.size() * sizeof(float)) == 0)
              << name(half) << ' ' << name(operation) << ' ' << count;
        }
      }
    }
  });
}

#if defined(__x86_64__)
TEST(kernel_values, the_calling_threads_floating_point_state_changes_no_bit) {
  // torch.set_flush_denormal(True) sets the first; the second rounds down.
  constexpr std::array<unsigned, 2> kStates{0x8040, 0x2000};
  Random random(kSeed, 330);
  const auto results = [](const std::vector<Buffer>& sources, DataType type) {
    std::vector<Buffer> made;
    std::vector<const std::byte*> pointers;
    for (const Buffer& source : sources) pointers.push_back(source.data());
    const std::size_t count = sources[0].size() / size_of(type);
    for (const ReduceOperation operation : all_reduce_operations()) {
      if (operation == ReduceOperation::kAverage) continue;
      reduce(made.emplace_back(sources[0].size()).data(), pointers, count, type, operation, {.factor = 0.3});
    }
    if (type != DataType::kFloat32) return made;
    for (const DataType half : {DataType::kFloat16, DataType::kBfloat16}) {
      Buffer narrowed(count * sizeof(std::uint16_t));
      auto* const halves = reinterpret_cast<std::uint16_t*>(narrowed.data());
      narrow_float32(halves, reinterpret_cast<const float*>(pointers[0]), count, half);
      Buffer own = sources[1];
      accumulate_narrowed(reinterpret_cast<float*>(own.data()), halves, count, half, ReduceOperation::kSum,
                          {.factor = 0.3});
      round_float32(reinterpret_cast<float*>(own.data()), count, half);
      made.insert(made.end(), {narrowed, own});
    }
    return made;
  };
  for_each_instruction_set([&] {
    for (const DataType type : all_data_types()) {
      if (type == DataType::kBoolean) continue;
      std::vector<Buffer> sources(3, Buffer(67 * size_of(type)));
      for (Buffer& source : sources) {
        for (std::byte& byte : source) byte = static_cast<std::byte>(random.below(256));
        // Denormals and what is near them, in every float type: small exponents.
        if (!is_floating_point(type)) continue;
        for (std::size_t i = size_of(type) - 1; i < source.size(); i += size_of(type)) source[i] &= std::byte{0x80};
      }
      const std::vector<Buffer> expected = results(sources, type);
      const unsigned former = _mm_getcsr();
      for (const unsigned bits : kStates) {
        _mm_setcsr(former | bits);
        const std::vector<Buffer> under_it = results(sources, type);
        EXPECT_EQ(_mm_getcsr() & bits, bits) << "the state was not restored";
        _mm_setcsr(former);
        EXPECT_TRUE(under_it == expected) << name(type) << ", state " << bits << ", seed " << kSeed;
      }
    }
  });
}
#endif

TEST(kernel_values, a_streaming_copy_equals_memcpy_at_every_alignment_and_touches_nothing_else) {
  Random random(kSeed, 400);
  for_each_instruction_set([&] {
    for (const std::size_t size_bytes : {std::size_t{0}, std::size_t{1}, std::size_t{1000},
                                         kStreamingCopyThresholdBytes, kStreamingCopyThresholdBytes + 12'345}) {
      Buffer source(size_bytes + 64);
      for (std::size_t i = 0; i < source.size(); i += 97) source[i] = static_cast<std::byte>(random.below(256));
      for (const std::size_t offset : {0u, 1u, 63u}) {
        Buffer destination(size_bytes + 192, std::byte{0xa5});
        std::byte* to = destination.data() + 64 + offset;
        copy_streaming(to, source.data() + offset, size_bytes);
        ASSERT_TRUE(std::equal(to, to + size_bytes, source.data() + offset)) << size_bytes << " bytes, " << offset;
        ASSERT_TRUE(std::all_of(destination.data(), to, [](std::byte value) { return value == std::byte{0xa5}; }));
        ASSERT_TRUE(std::all_of(to + size_bytes, destination.data() + destination.size(),
                                [](std::byte value) { return value == std::byte{0xa5}; }));
      }
    }
  });
}

TEST(kernel_values, two_copies_in_one_pass_equal_memcpy_at_every_alignment_and_touch_nothing_else) {
  Random random(kSeed, 401);
  for_each_instruction_set([&] {
    for (const auto copy : {copy_to_both, copy_around_to_both}) {
      for (const std::size_t size_bytes : {std::size_t{0}, std::size_t{1}, std::size_t{63}, std::size_t{5000}}) {
        Buffer source(size_bytes + 64);
        for (std::byte& value : source) value = static_cast<std::byte>(random.below(256));
        for (const std::size_t first_offset : {0u, 1u, 64u}) {
          for (const std::size_t second_offset : {0u, 1u, 63u}) {
            const std::byte* from = source.data() + random.below(64);
            Buffer expected(size_bytes + 192, std::byte{0xa5});
            Buffer first = expected;
            Buffer second = expected;
            copy(first.data() + 64 + first_offset, second.data() + 64 + second_offset, from, size_bytes);
            Buffer expected_second = expected;
            std::copy(from, from + size_bytes, expected.begin() + 64 + static_cast<std::ptrdiff_t>(first_offset));
            std::copy(from, from + size_bytes,
                      expected_second.begin() + 64 + static_cast<std::ptrdiff_t>(second_offset));
            ASSERT_TRUE(first == expected && second == expected_second)
                << size_bytes << " bytes, " << first_offset << ", " << second_offset;
          }
        }
      }
    }
  });
}

}  // namespace
}  // namespace gyre::collectives
