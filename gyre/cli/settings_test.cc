// A misspelt setting would have no effect, and nobody would know.
#include "gyre/cli/settings.h"

#include <gmock/gmock.h>

namespace gyre::cli {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Settings, that_do_not_exist_are_named_with_the_nearest_one) {
  EXPECT_THAT(unknown_settings(
                  {"PATH=/bin", "GYRE_RANK=0", "GYRE_TLS=", "GYREX=1", "MY_GYRE_X=1", "GYRE_TEST_X=1", "GYRE_DEV_X=1"}),
              IsEmpty());
  EXPECT_THAT(unknown_settings({"GYRE_STALL_WARNING_SECOND=5", "GYRE_CHEESE_MONGER_QUALITY=1"}),
              ElementsAre("GYRE_CHEESE_MONGER_QUALITY has no effect: Gyre has no such setting",
                          "GYRE_STALL_WARNING_SECOND has no effect: Gyre has no such setting; did you mean "
                          "GYRE_STALL_WARNING_SECONDS?"));
}

}  // namespace
}  // namespace gyre::cli
