// A job may make process sets for as long as it runs: what is remembered of them must be bounded, and lose nothing that
// somebody still looks at.
#include "gyre/group/departures.h"

#include <gtest/gtest.h>

namespace gyre::group {
namespace {

TEST(PartDeparturesTest, forgets_the_oldest_process_sets_that_nobody_looks_at) {
  PartDepartures parts(2);
  const auto watched = parts.of(1);
  for (std::uint64_t id = 2; id < 3 * PartDepartures::kMostRemembered; ++id) parts.of(id)->mark(0);
  EXPECT_LE(parts.count(), PartDepartures::kMostRemembered);
  parts.of(1)->mark(1);
  EXPECT_TRUE(watched->has_left(1));
  EXPECT_TRUE(parts.of(3 * PartDepartures::kMostRemembered - 1)->has_left(0));
  EXPECT_FALSE(parts.of(2)->has_left(0));
}

}  // namespace
}  // namespace gyre::group
