// Names and numbers of accounts, one from the other, and nothing for those that do not exist.
#include "gyre/base/account.h"

#include <gtest/gtest.h>

namespace gyre {
namespace {

TEST(Account, names_and_numbers_lead_to_each_other) {
  EXPECT_EQ(account_number("root"), 0U);
  EXPECT_EQ(account_name(0), "root");
  const auto nobody = account_number("nobody");
  ASSERT_TRUE(nobody);
  EXPECT_EQ(account_name(*nobody), "nobody");
}

TEST(Account, what_does_not_exist_is_nothing_and_a_number_is_no_name) {
  for (const char* name : {"", "no-such-account", "0", "root ", "root:x"}) EXPECT_FALSE(account_number(name)) << name;
  EXPECT_FALSE(account_name(static_cast<uid_t>(-2)));
  EXPECT_EQ(name_of_account(0), "root");
  EXPECT_EQ(name_of_account(static_cast<uid_t>(-2)), "#4294967294");
}

}  // namespace
}  // namespace gyre
