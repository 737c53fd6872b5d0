// Error feedback must lose nothing: what has been sent and what is still owed add up to what was given.
#include "gyre/engine/internal/plan/error_feedback.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "gyre/base/random.h"

namespace gyre::engine::internal {
namespace {

using collectives::WireFormat;

class ErrorFeedbackTest : public testing::TestWithParam<WireFormat> {};

TEST_P(ErrorFeedbackTest, what_was_sent_and_what_is_owed_add_up_to_what_was_given) {
  constexpr std::uint64_t kSeed = 5;
  SCOPED_TRACE(kSeed);
  Random random(kSeed);
  constexpr std::size_t kCount = 2500;
  constexpr int kSteps = 50;
  std::vector<double> given(kCount, 0.0);
  std::vector<double> sent(kCount, 0.0);
  std::vector<float> residuals(kCount, 0.0F);
  for (int step = 0; step < kSteps; ++step) {
    std::vector<float> values;
    for (std::size_t i = 0; i < kCount; ++i) values.push_back(1.0F + random.uniform(-0.001F, 0.001F));
    for (std::size_t i = 0; i < kCount; ++i) given[i] += static_cast<double>(values[i]);
    compensate(values, residuals, GetParam());
    for (std::size_t i = 0; i < kCount; ++i) sent[i] += static_cast<double>(values[i]);
  }
  double rounded_off = 0;  // By rounding without feedback.
  for (std::size_t i = 0; i < kCount; ++i) {
    EXPECT_NEAR(given[i], sent[i] + static_cast<double>(residuals[i]), 1e-5);
    rounded_off += std::abs(given[i] - kSteps);
  }
  EXPECT_GT(rounded_off, 1.0) << "the values do not show what feedback is for";
}

TEST_P(ErrorFeedbackTest, values_that_the_format_holds_are_left_alone) {
  std::vector<float> values = {0.0F, -0.0F, 1.0F, -2.5F, 1024.0F};
  const std::vector<float> before = values;
  std::vector<float> residuals(values.size(), 0.0F);
  compensate(values, residuals, GetParam());
  EXPECT_EQ(values, before);
  EXPECT_EQ(residuals, std::vector<float>(values.size(), 0.0F));
}

TEST_P(ErrorFeedbackTest, what_is_not_finite_is_not_carried_on) {
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> values = {infinity, -infinity, std::nanf(""), 3.4e38F};
  std::vector<float> residuals(values.size(), 0.5F);
  compensate(values, residuals, GetParam());
  EXPECT_EQ(values[0], infinity);
  EXPECT_EQ(values[1], -infinity);
  EXPECT_TRUE(std::isnan(values[2]));
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(residuals[i], 0.0F);
  EXPECT_TRUE(std::isfinite(residuals[3]));
}

INSTANTIATE_TEST_SUITE_P(Formats, ErrorFeedbackTest, testing::Values(WireFormat::kBfloat16, WireFormat::kFloat16));

}  // namespace
}  // namespace gyre::engine::internal
