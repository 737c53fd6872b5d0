// A token opens its user's workspaces and no others, and cannot be read out of the file.
#include "gyre/jobs/catalog/users.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gyre/base/file.h"
#include "gyre/jobs/catalog/catalog_test_support.h"

namespace gyre::jobs::catalog {
namespace {

class UsersTest : public testing::Test {
 protected:
  TemporaryFolder folder_;
  Catalog catalog_ = Catalog::open(folder_.file());
};

TEST_F(UsersTest, a_token_proves_its_user_until_it_is_renewed) {
  const UserWithToken ann = catalog_.users().create("ann", false);
  const UserWithToken bob = catalog_.users().create("bob", false);
  EXPECT_EQ(catalog_.users().authenticate(ann.token)->name, "ann");
  EXPECT_EQ(catalog_.users().authenticate(bob.token)->name, "bob");
  for (const std::string& wrong : {std::string(), ann.token.substr(1), ann.token + " ", std::string("' OR 1=1 --")}) {
    EXPECT_FALSE(catalog_.users().authenticate(wrong));
  }
  const std::string renewed = catalog_.users().renew_token(ann.user.id);
  EXPECT_FALSE(catalog_.users().authenticate(ann.token));
  EXPECT_EQ(catalog_.users().authenticate(renewed)->id, ann.user.id);
  catalog_.users().remove(ann.user.id);
  EXPECT_FALSE(catalog_.users().authenticate(renewed));
}

TEST_F(UsersTest, a_token_is_not_in_the_file) {
  const std::string token = catalog_.users().create("ann", false).token;
  EXPECT_EQ(token.size(), 64U);
  {
    const Catalog closed = std::move(catalog_);
  }
  EXPECT_THAT(std::string(as_text(read_file(folder_.file(), 1 << 24))), testing::Not(testing::HasSubstr(token)));
}

TEST_F(UsersTest, an_account_leads_to_its_user_by_the_users_name_or_by_another_one) {
  const Id ann = catalog_.users().create("ann", false).user.id;
  const Id bob = catalog_.users().create("bob", false).user.id;
  catalog_.users().set_account(bob, "robert");
  EXPECT_EQ(catalog_.users().find_by_account("ann")->id, ann);
  EXPECT_EQ(catalog_.users().find_by_account("robert")->id, bob);
  EXPECT_EQ(catalog_.users().find("bob")->account_name(), "robert");
  EXPECT_FALSE(catalog_.users().find_by_account("bob"));
  EXPECT_FALSE(catalog_.users().find_by_account(""));
  EXPECT_FALSE(catalog_.users().find("ann")->is_trusted);
  catalog_.users().set_trusted(ann, true);
  EXPECT_TRUE(catalog_.users().find("ann")->is_trusted);
  EXPECT_THROW(catalog_.users().set_account(77, "x"), Error);
}

TEST_F(UsersTest, members_use_their_workspaces_and_administrators_all) {
  const Id mine = catalog_.workspaces().create("mine", "here").id;
  const Id other = catalog_.workspaces().create("other", "here").id;
  const User ann = catalog_.users().create("ann", false).user;
  const User root = catalog_.users().create("root", true).user;
  catalog_.users().add_member(mine, ann.id);
  catalog_.users().add_member(mine, ann.id);
  EXPECT_TRUE(catalog_.users().may_use(ann, mine));
  EXPECT_FALSE(catalog_.users().may_use(ann, other));
  EXPECT_TRUE(catalog_.users().may_use(root, other));
  EXPECT_THAT(catalog_.users().workspaces_of(ann.id), testing::ElementsAre(mine));
  catalog_.users().remove_member(mine, ann.id);
  EXPECT_FALSE(catalog_.users().may_use(ann, mine));
  EXPECT_THROW(catalog_.users().add_member(77, ann.id), Error);
}

}  // namespace
}  // namespace gyre::jobs::catalog
