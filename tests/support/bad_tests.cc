// Tests that are bad in every way, for tests/tools/bad_tests_test.py; CTest does not know them otherwise.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

TEST(Bad, fails) { FAIL(); }
TEST(Bad, hangs) { sleep(600); }
TEST(Bad, hangs_with_a_child) { ASSERT_EQ(std::system("sleep 604"), 0); }
TEST(Bad, crashes) { std::abort(); }
TEST(Bad, ends_the_process) { _exit(0); }
TEST(Bad, leaves_a_process) { ASSERT_EQ(std::system("sleep 601 &"), 0); }
TEST(Bad, leaves_a_process_in_a_session_of_its_own) { ASSERT_EQ(std::system("setsid sleep 602 >/dev/null 2>&1 &"), 0); }
TEST(Bad, leaves_a_process_and_crashes) {
  ASSERT_EQ(std::system("sleep 603 &"), 0);
  std::abort();
}
TEST(Good, passes) {}
