// A failed check is the last thing a process says: it must name the expression and both values.
#include "gyre/base/check.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace gyre {
namespace {

enum class Colour { kRed = 4 };

TEST(check, a_true_check_evaluates_its_operands_once) {
  int evaluated = 0;
  GYRE_CHECK(++evaluated == 1);
  GYRE_CHECK(evaluated < 2);
  GYRE_CHECK(true);
  EXPECT_EQ(evaluated, 1);
}

TEST(check_death, a_false_check_prints_both_values_and_stops) {
  const int three = 3;
  EXPECT_DEATH(GYRE_CHECK(three == 4), "check_test.cc:[0-9]+: three == 4 \\(values: 3 == 4\\)");
  EXPECT_DEATH(GYRE_CHECK(std::string("a") != "a"), "values: a != a");
  EXPECT_DEATH(GYRE_CHECK(three >= 4), "values: 3 >= 4");
  EXPECT_DEATH(GYRE_CHECK(three > 3), "values: 3 > 3");
  EXPECT_DEATH(GYRE_CHECK(three <= 2), "values: 3 <= 2");
  EXPECT_DEATH(GYRE_CHECK(false), "check failed at .*: false \\(values: false\\)");
}

TEST(check_death, values_that_cannot_be_printed_do_not_prevent_the_check) {
  const std::vector<int> one = {1};
  const int* const nowhere = nullptr;
  EXPECT_DEATH(GYRE_CHECK(one == std::vector<int>{}), "values: \\? == \\?");
  EXPECT_DEATH(GYRE_CHECK(nowhere != nullptr), "values: 0x0 != 0x0");
  EXPECT_DEATH(GYRE_CHECK(Colour::kRed != Colour::kRed), "values: 4 != 4");
}

}  // namespace
}  // namespace gyre
