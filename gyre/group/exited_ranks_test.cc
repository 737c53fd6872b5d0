// A job may make process sets for as long as it runs: what is remembered of them must be bounded, and lose nothing that
// somebody still looks at.
#include "gyre/group/exited_ranks.h"

#include <gtest/gtest.h>

namespace gyre::group {
namespace {

TEST(SubgroupExitsTest, forgets_the_oldest_process_sets_that_nobody_looks_at) {
  SubgroupExits exits(2);
  const auto watched = exits.of(1);
  for (std::uint64_t id = 2; id < 3 * SubgroupExits::kMostRemembered; ++id) exits.of(id)->mark(0);
  EXPECT_LE(exits.count(), SubgroupExits::kMostRemembered);
  exits.of(1)->mark(1);
  EXPECT_TRUE(watched->has_left(1));
  EXPECT_TRUE(exits.of(3 * SubgroupExits::kMostRemembered - 1)->has_left(0));
  EXPECT_FALSE(exits.of(2)->has_left(0));
}

}  // namespace
}  // namespace gyre::group
