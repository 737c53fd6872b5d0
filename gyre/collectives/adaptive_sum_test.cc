// Why: an adaptive sum and the sum of sparse rows are made on each rank alone, and must have the same bits whatever the
// floating-point state of the thread that asks for them.
#include "gyre/collectives/adaptive_sum.h"

#include <gtest/gtest.h>

#include <cfenv>
#include <cmath>
#include <cstring>

#include "gyre/base/error.h"
#include "gyre/base/floating_point.h"
#include "gyre/base/random.h"
#include "gyre/collectives/internal/kernels/kernels_test_support.h"
#include "gyre/collectives/internal/test_support.h"
#include "gyre/collectives/row_sums.h"

namespace gyre::collectives {
namespace {

/// As after torch.set_flush_denormal(True) and fesetround(FE_UPWARD).
class OddState {
 public:
  OddState() {
#if defined(__x86_64__)
    _mm_setcsr(former_ | 0x8040 | 0x4000);
#endif
  }
  ~OddState() {
#if defined(__x86_64__)
    _mm_setcsr(former_);
#endif
  }
  OddState(const OddState&) = delete;
  OddState& operator=(const OddState&) = delete;

 private:
#if defined(__x86_64__)
  unsigned former_ = _mm_getcsr();
#endif
};

using Rows = std::vector<std::vector<double>>;

/// The formula as it is written down, in long double.
std::vector<long double> reference(const Rows& rows, double prescale, double postscale) {
  std::vector<std::vector<long double>> level;
  for (const std::vector<double>& row : rows) {
    level.emplace_back();
    for (const double value : row) level.back().push_back(static_cast<long double>(value) * prescale);
  }
  const auto dot = [](const auto& a, const auto& b) {
    long double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
  };
  while (level.size() > 1) {
    std::vector<std::vector<long double>> next;
    for (std::size_t pair = 0; pair < level.size(); pair += 2) {
      if (pair + 1 == level.size()) {
        next.push_back(level[pair]);
        continue;
      }
      const auto& a = level[pair];
      const auto& b = level[pair + 1];
      std::vector<long double>& sum = next.emplace_back();
      for (std::size_t i = 0; i < a.size(); ++i) {
        sum.push_back((1 - dot(a, b) / (2 * dot(a, a))) * a[i] + (1 - dot(a, b) / (2 * dot(b, b))) * b[i]);
      }
    }
    level = next;
  }
  for (long double& value : level[0]) value *= postscale;
  return level[0];
}

TEST(AdaptiveSum, is_the_formulas_for_any_number_of_contributions_and_elements) {
  Random random(testing::test_seed(), 51);
  for (int round = 0; round < 60; ++round) {
    const std::size_t count = 1 + random.below(200);
    Rows rows(1 + random.below(7), std::vector<double>(count));
    std::vector<const std::byte*> sources;
    for (std::vector<double>& row : rows) {
      for (double& value : row) value = random.uniform(-2.0F, 2.0F);
      sources.push_back(reinterpret_cast<const std::byte*>(row.data()));
    }
    std::vector<double> result(count);
    adaptive_sum({reinterpret_cast<std::byte*>(result.data()), DataType::kFloat64}, sources, DataType::kFloat64, count,
                 0.5, 3.0);
    const std::vector<long double> wanted = reference(rows, 0.5, 3.0);
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_NEAR(result[i], static_cast<double>(wanted[i]), 1e-12) << i << ", seed " << testing::test_seed();
    }
  }
}

/// Denormals, and sums that rounding upward would change.
template <typename Number>
std::vector<std::vector<Number>> delicate_rows(std::size_t count) {
  Random random(testing::test_seed(), 52);
  std::vector<std::vector<Number>> rows(3, std::vector<Number>(count));
  for (std::vector<Number>& row : rows) {
    for (Number& value : row) {
      const bool denormal = random.below(2) == 0;
      value = static_cast<Number>(random.uniform(-1.0F, 1.0F)) / Number{3};
      if (denormal) value *= std::numeric_limits<Number>::min();
    }
  }
  return rows;
}

template <typename Number>
std::vector<Number> sum_adaptively(const std::vector<std::vector<Number>>& rows, DataType type) {
  std::vector<const std::byte*> sources;
  for (const std::vector<Number>& row : rows) sources.push_back(reinterpret_cast<const std::byte*>(row.data()));
  std::vector<Number> result(rows[0].size());
  adaptive_sum({reinterpret_cast<std::byte*>(result.data()), type}, sources, type, result.size(), 0.7, 1.1);
  return result;
}

template <typename Number>
std::vector<Number> sum_of_rows(const std::vector<std::vector<Number>>& rows, DataType type) {
  const std::vector<std::int64_t> places{0, 1, 0};
  std::vector<Number> values;
  for (const std::vector<Number>& row : rows) values.insert(values.end(), row.begin(), row.end());
  std::vector<Number> result(2 * rows[0].size());
  add_rows(std::as_writable_bytes(std::span(result)), std::as_bytes(std::span(values)), places,
           rows[0].size() * sizeof(Number),
           {.type = type, .operation = ReduceOperation::kAverage, .prescale = 0.7, .postscale = 1.1}, 3);
  return result;
}

template <typename Number>
void expect_the_same_in_an_odd_state(DataType type) {
  const std::vector<std::vector<Number>> rows = delicate_rows<Number>(101);
  const std::vector<Number> adaptive = sum_adaptively(rows, type);
  const std::vector<Number> sparse = sum_of_rows(rows, type);
  const OddState state;
  EXPECT_EQ(sum_adaptively(rows, type), adaptive);
  EXPECT_EQ(sum_of_rows(rows, type), sparse);
}

TEST(AdaptiveSum, and_sums_of_rows_do_not_depend_on_the_threads_floating_point_state) {
  expect_the_same_in_an_odd_state<float>(DataType::kFloat32);
  expect_the_same_in_an_odd_state<double>(DataType::kFloat64);
}

TEST(AdaptiveSum, of_16_bit_floats_is_rounded_once) {
  // Above the middle between two float16, by less than float32 shows: rounded to it first, it would be a tie, to even.
  const double above_tie = 1.0 + 0x1p-11 + 0x1p-40;
  const std::byte* source = reinterpret_cast<const std::byte*>(&above_tie);
  std::uint16_t half = 0;
  adaptive_sum({reinterpret_cast<std::byte*>(&half), DataType::kFloat16}, {&source, 1}, DataType::kFloat64, 1, 1.0,
               1.0);
  EXPECT_EQ(float16_value(half), 1.0F + 0x1p-10F);
}

TEST(SumsOfRows, are_what_reduce_makes_of_the_rows_in_their_order) {
  Random random(testing::test_seed(), 53);
  for (int round = 0; round < 60; ++round) {
    const std::size_t places = 1 + random.below(20);
    const std::size_t width = 1 + random.below(9);
    std::vector<std::int64_t> place_of_row(places);  // Each at least once,
    for (std::size_t i = 0; i < places; ++i) place_of_row[i] = static_cast<std::int64_t>(i);
    while (random.below(20) != 0) place_of_row.push_back(static_cast<std::int64_t>(random.below(places)));
    std::vector<float> rows(place_of_row.size() * width);
    for (float& value : rows) value = std::ldexp(random.uniform(-1.0F, 1.0F), static_cast<int>(random.below(30)));
    std::vector<float> wanted(places * width);
    std::vector<bool> begun(places);
    for (std::size_t row = 0; row < place_of_row.size(); ++row) {
      const auto place = static_cast<std::size_t>(place_of_row[row]);
      for (std::size_t i = 0; i < width; ++i) {
        float& sum = wanted[place * width + i];
        sum = begun[place] ? sum + 0.5F * rows[row * width + i] : 0.5F * rows[row * width + i];
      }
      begun[place] = true;
    }
    for (float& sum : wanted) sum /= 3.0F;
    std::vector<float> result(places * width);
    add_rows(std::as_writable_bytes(std::span(result)), std::as_bytes(std::span(rows)), place_of_row,
             width * sizeof(float),
             {.type = DataType::kFloat32, .operation = ReduceOperation::kAverage, .prescale = 0.5}, 3);
    ASSERT_EQ(result, wanted) << "seed " << testing::test_seed();
  }
}

TEST(SumsOfRows, refuse_places_that_do_not_fit_the_result) {
  const std::vector<float> rows(2);
  std::vector<float> result(2);
  const auto add = [&](const std::vector<std::int64_t>& places) {
    add_rows(std::as_writable_bytes(std::span(result)), std::as_bytes(std::span(rows)), places, sizeof(float), {}, 2);
  };
  add({1, 0});
  for (const std::vector<std::int64_t>& places : {std::vector<std::int64_t>{0, 2}, {0, -1}, {1, 1}}) {
    EXPECT_THROW(add(places), Error);
  }
}

}  // namespace
}  // namespace gyre::collectives
