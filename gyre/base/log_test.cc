// A logger's level comes from the environment, so a wrong word must be an error that names the right ones.
#include "gyre/base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/logger.h>

#include "gyre/base/error.h"

namespace gyre {
namespace {

TEST(log, lines_name_the_program_the_level_and_the_prefix) {
  testing::internal::CaptureStderr();
  make_logger("rank 2", "info")->info("joined {}", 4);
  make_logger("", "info")->warn("alone");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "[gyre info rank 2] joined 4\n[gyre warning] alone\n");
}

TEST(log, lines_below_the_level_are_dropped) {
  testing::internal::CaptureStderr();
  make_logger("x")->info("quiet");
  make_logger("x", "off")->critical("silent");
  null_logger()->critical("nothing");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(log, every_documented_level_is_accepted_and_no_other) {
  for (const char* level : {"trace", "debug", "info", "warning", "error", "off"}) {
    EXPECT_NO_THROW(make_logger("x", level)) << level;
  }
  for (const char* level : {"loud", "", "critical", "Info"}) {
    try {
      make_logger("x", level);
      ADD_FAILURE() << "accepted level '" << level << "'";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_THAT(error.what(), testing::HasSubstr("trace debug info warning error off"));
    }
  }
}

}  // namespace
}  // namespace gyre
