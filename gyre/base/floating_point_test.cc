// Why: results must not depend on which thread computes them, and a user's thread must find its state as it was.
#include "gyre/base/floating_point.h"

#include <gtest/gtest.h>

#include <cfenv>
#include <limits>

namespace gyre {
namespace {

constexpr float kDenormal = std::numeric_limits<float>::denorm_min() * 8;

[[gnu::noinline]] float half_of(float value) {
  volatile float copy = value;  // Computed at run time.
  return copy * 0.5F;
}

[[gnu::noinline]] float third_of_one() {
  volatile float one = 1.0F;
  return one / 3.0F;
}

#if defined(__x86_64__)
constexpr unsigned kFlushing = 0x8040;

TEST(DefaultFloatingPoint, keeps_denormals_while_it_exists_and_then_restores_the_state) {
  const unsigned former = _mm_getcsr();
  _mm_setcsr(former | kFlushing);
  EXPECT_EQ(half_of(kDenormal), 0.0F);
  {
    const DefaultFloatingPoint state;
    EXPECT_EQ(half_of(kDenormal), std::numeric_limits<float>::denorm_min() * 4);
  }
  EXPECT_EQ(half_of(kDenormal), 0.0F);
  EXPECT_EQ(_mm_getcsr() & kFlushing, kFlushing);
  _mm_setcsr(former);
}
#endif

TEST(DefaultFloatingPoint, rounds_to_nearest_while_it_exists_and_then_restores_the_mode) {
  const float nearest = third_of_one();
  ASSERT_EQ(std::fesetround(FE_DOWNWARD), 0);
  const float below = third_of_one();
  float inside = 0;
  {
    const DefaultFloatingPoint state;
    inside = third_of_one();
  }
  const float after = third_of_one();
  std::fesetround(FE_TONEAREST);
  EXPECT_LT(below, nearest);
  EXPECT_EQ(inside, nearest);
  EXPECT_EQ(after, below);
}

TEST(DefaultFloatingPoint, lets_nothing_trap_while_it_exists) {
  ASSERT_NE(feenableexcept(FE_INEXACT | FE_DIVBYZERO), -1);
  float inside = 0;
  {
    const DefaultFloatingPoint state;
    inside = third_of_one();
  }
  const int enabled = fedisableexcept(FE_ALL_EXCEPT);
  EXPECT_EQ(enabled, FE_INEXACT | FE_DIVBYZERO);
  EXPECT_GT(inside, 0.0F);
}

}  // namespace
}  // namespace gyre
